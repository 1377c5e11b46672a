#include "ops/activation/gelu_tanh_and_mul.h"

#include <cmath>

#include "core/fixed_math.h"
#include "ops/base/golden_output.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

/// sqrt(2/pi) and the cubic's coefficient as the kernels have them, in fp32.
constexpr float sqrt_two_over_pi = 0.7978845608028654f, cubic = 0.044715f;

/// With z = sqrt(2/pi) * (g + 0.044715 g^3): z has at most 5 roundings, none of which cancels; tanh' = 1 - tanh^2 passes them on. tanh
/// itself is off by `tanh_error`, relative; 1 + tanh is rounded. For g below about -2 that is much against 1 + tanh itself, so the slack is
/// absolute. Two products: 2^-24 each, relative. Beyond |z| = 10 every tanh is +-1 to the bit.
Bounded gelu_tanh(double g, double tanh_error) {
  const double inner = g + static_cast<double>(cubic) * g * g * g, z = static_cast<double>(sqrt_two_over_pi) * inner;
  const double one_plus_tanh = 2.0 * fixed::sigmoid(2.0 * z);
  const double value = g * 0.5 * one_plus_tanh, magnitude = std::fabs(value);
  if (value == 0 || !std::isfinite(value)) return {value, 0.0};
  const double products = 2.0 * f32_eps * magnitude;
  if (z < -10.0) return {value, magnitude + products};
  double sum_error = one_plus_tanh * f32_eps;
  if (z < 10.0) {
    const double tanh = fixed::tanh(z);
    sum_error += std::fabs(tanh) * tanh_error + (1.0 - tanh * tanh) * std::fabs(z) * 5.0 * f32_eps;
  }
  return {value, std::fabs(g) * 0.5 * sum_error + products};
}

float hopper_gelu_tanh(float g) {
  namespace hw = quant::hopper;
  const float inner = hw::fma(hw::mul(hw::mul(cubic, g), g), g, g);
  return hw::mul(g, hw::mul(0.5f, hw::add(1.0f, hw::tanh(hw::mul(sqrt_two_over_pi, inner)))));
}

void golden(const GeluTanhAndMul& op, const Exec& exec, Reference* reference) {
  const auto measured = [](double g) { return gelu_tanh(g, 0x1p-16); };
  const auto documented = [](double g) { return gelu_tanh(g, 0x1p-11); };
  golden_act_and_mul(act_and_mul(op), op.tanh_error == "measured" ? +measured : +documented, exec, reference);
}
void fast(const GeluTanhAndMul& op, const Exec& exec) {
  fast_act_and_mul(act_and_mul(op), ActivationKind::gelu_tanh, exec);
}
void hopper(const GeluTanhAndMul& op, const Exec& exec) {
  hopper_act_and_mul(act_and_mul(op), hopper_gelu_tanh, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_gelu_tanh_and_mul() {
  return define<ops::GeluTanhAndMul>({
      .contract = R"(
gate and up widened to fp32; gelu = gate * (0.5 * (1 + tanh(0.79788456 * (gate + 0.044715 gate^3)))) in fp32, not rounded to the
type (round_activation=yes: rounded); times up in fp32; one rounding to the type (nearest even). Budget: |up| * |gate|/2 times
(tanh_error * |tanh| + 2^-24 (5 |z| (1 - tanh^2) + 1 + tanh)), absolute because 1 + tanh cancels, plus 3 * 2^-24 relative for
products. tanh_error is 2^-16 by default: the approximate tanh of an H200 is within 1.12e-5 of the exact one for all arguments;
tanh_error=documented allows the instruction's documented 2^-11. Down to 0 where tanh is -1 and where gelu, up or the product
are denormal. Where up is infinite and gelu may so vanish, nothing is compared.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported_act_and_mul<ops::GeluTanhAndMul>,
      .defects = {ops::misaligned_half_row<ops::GeluTanhAndMul>()},
      .mistakes = {ops::quick_gelu<ops::GeluTanhAndMul>()},
      .customary = {{"*", CustomaryKind::close, 1e-3, 1e-3, "sgl-kernel/tests/test_activation.py test_fused_gelu_tanh_mul (f16)"}},
      .fib_names = {{"gelu_tanh_and_mul", "activation", "gelu_tanh_and_mul_h", {{"input", "input"}}, {{"out", "output"}}}},
      .cases = {"T=4 D=2048", "T=3 D=1408 --dtype input=f16", "T=5 D=37 --dtype input=f32", "T=2 D=512 --dialect deepseek",
                "T=2 D=512 --dialect trtllm"},
      .bench_cases = {"T=1 D=2048", "T=512 D=2048", "T=512 D=18432"},
  });
}
}  // namespace dodona
