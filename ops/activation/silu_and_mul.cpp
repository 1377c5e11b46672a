#include "ops/activation/silu_and_mul.h"

#include <cmath>
#include <limits>

#include "core/fixed_math.h"
#include "ops/base/golden_output.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

/// Slack, in units of 2^-24, relative. With w = e^-g / (1 + e^-g): the exponential's documented 2 + 1.173|g| ulp (2 units each) weigh w;
/// 1 + e^-g: 1; approximate division, 2 ulp: 4; and 1 for implementations that multiply by a rounded sigmoid.
/// Approximate division gives 0 where the divisor exceeds 2^126: the slack there reaches 0. Where e^-g overflows fp32 (g < -88.72) the
/// value is -0 for all that follow the formula; the slack reaches the true value. The last two bounds are drawn 2^-15 wide, three times the
/// exponential's error there.
Bounded silu(double g) {
  const double value = g * fixed::sigmoid(g), magnitude = std::fabs(value);
  if (value == 0 || !std::isfinite(value)) return {value, 0.0};
  const double exponential = fixed::exp(-g), blur = 1 + 0x1p-15;
  if (exponential > std::numeric_limits<float>::max() * blur) return {-0.0, magnitude};
  if (exponential * blur > 0x1p126) return {value, magnitude};
  const double weight = fixed::sigmoid(-g);
  return {value, magnitude * (2.0 * weight * (2.0 + 1.173 * std::fabs(g)) + 6.0) * f32_eps};
}

float hopper_silu(float g) {
  namespace hw = quant::hopper;
  return hw::div(g, hw::add(1.0f, hw::expf(-g)));
}

void golden(const SiluAndMul& op, const Exec& exec, Reference* reference) {
  golden_act_and_mul(act_and_mul(op), silu, exec, reference);
}
void fast(const SiluAndMul& op, const Exec& exec) {
  fast_act_and_mul(act_and_mul(op), ActivationKind::silu, exec);
}
void hopper(const SiluAndMul& op, const Exec& exec) {
  hopper_act_and_mul(act_and_mul(op), hopper_silu, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_silu_and_mul() {
  return define<ops::SiluAndMul>({
      .contract = R"(
gate and up widened to fp32; silu = gate / (1 + exp(-gate)) in fp32, not rounded to the type (round_activation=yes: rounded);
times up in fp32; one rounding to the type (nearest even). exp(-gate) overflows beyond 88.72, which gives -0. Budget, relative,
in units of 2^-24: 2*(2 + 1.173|gate|) weighted with exp(-gate)/(1 + exp(-gate)) for the exponential, 1 for the sum, 4 for an
approximate division, 2 for products. Down to 0 where 1 + exp(-gate) exceeds 2^126 (gate below -87.33) and where silu, up or the
product are denormal: fast-math builds lose those. Where up is infinite and silu may so vanish, nothing is compared.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported_act_and_mul<ops::SiluAndMul>,
      .defects = {ops::misaligned_half_row<ops::SiluAndMul>()},
      .customary = {{"*", CustomaryKind::close, 1e-3, 1e-3, "sgl-kernel/tests/test_activation.py test_fused_silu_mul (f16)"}},
      .fib_names = {{"silu_and_mul", "activation", "silu_and_mul_h", {{"input", "input"}}, {{"out", "output"}}}},
      .cases = {"T=4 D=2048", "T=3 D=1408 --dtype input=f16", "T=5 D=37 --dtype input=f32", "T=2 D=512 --dialect deepseek",
                "T=2 D=512 --dialect trtllm"},
      .bench_cases = {"T=1 D=2048", "T=512 D=2048", "T=512 D=18432", "T=4096 D=2048"},
  });
}
}  // namespace dodona
