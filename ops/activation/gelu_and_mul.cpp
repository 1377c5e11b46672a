#include "ops/activation/gelu_and_mul.h"

#include <algorithm>
#include <cmath>

#include "core/fixed_math.h"
#include "ops/base/golden_output.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

/// 1/sqrt(2) as the kernels have it, in fp32.
constexpr float sqrt_half = 0.70710678f;

/// With z = g/sqrt(2): 1 + erf(z) is off by 2 ulp of erf, by the rounding of z (2^-24 |z| erf'(z)) and by its own rounding; for g below
/// about -3 that is much against 1 + erf(z) itself, and the slack is absolute, about 2^-24 |g|. Two products: 2^-24 each, relative. Beyond
/// |z| = 4.5 every fp32 erf is +-1 to the bit: for negative g the value is -0, and the slack reaches from there to the true value.
Bounded gelu(double g) {
  const double z = g * static_cast<double>(sqrt_half), one_plus_erf = fixed::erfc(-z);
  const double value = g * 0.5 * one_plus_erf, magnitude = std::fabs(value);
  if (value == 0 || !std::isfinite(value)) return {value, 0.0};
  const double products = 2.0 * f32_eps * magnitude;
  if (z < -4.5) return {value, magnitude + products};
  double sum_error = one_plus_erf * f32_eps;
  if (z < 4.5) {
    const double erf_magnitude = std::min(std::fabs(fixed::erf(z)), 1.0 - f32_eps);
    const double two_over_sqrt_pi = 0x1.20dd750429b6dp+0;
    sum_error += 2.0 * quant::ulp(DType::f32, erf_magnitude) + std::fabs(z) * f32_eps * two_over_sqrt_pi * fixed::exp(-z * z);
  }
  return {value, std::fabs(g) * 0.5 * sum_error + products};
}

float hopper_gelu(float g) {
  namespace hw = quant::hopper;
  return hw::mul(g, hw::mul(0.5f, hw::add(1.0f, hw::erff(hw::mul(g, sqrt_half)))));
}

void golden(const GeluAndMul& op, const Exec& exec, Reference* reference) {
  golden_act_and_mul(act_and_mul(op), gelu, exec, reference);
}
void fast(const GeluAndMul& op, const Exec& exec) {
  fast_act_and_mul(act_and_mul(op), ActivationKind::gelu, exec);
}
void hopper(const GeluAndMul& op, const Exec& exec) {
  hopper_act_and_mul(act_and_mul(op), hopper_gelu, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_gelu_and_mul() {
  return define<ops::GeluAndMul>({
      .contract = R"(
gate and up widened to fp32; gelu = gate * (0.5 * (1 + erf(gate * 0.70710678))) in fp32, constant and products rounded to fp32,
not rounded to the type (round_activation=yes: rounded); times up in fp32; one rounding to the type (nearest even). Budget: |up|
* |gate|/2 times (2 ulp of erf + 2^-24 (|z| erf'(z) + 1 + erf(z))), absolute because 1 + erf cancels, plus 3 * 2^-24 relative
for products. Down to 0 where erf is -1 in fp32 (gate below -6.36) and where gelu, up or the product are denormal. Where up is
infinite and gelu may so vanish, nothing is compared.)",
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported_act_and_mul<ops::GeluAndMul>,
      .defects = {ops::misaligned_half_row<ops::GeluAndMul>()},
      .mistakes = {ops::quick_gelu<ops::GeluAndMul>()},
      .customary = {{"*", CustomaryKind::close, 1e-3, 1e-3, "sgl-kernel/tests/test_activation.py test_fused_gelu_mul (f16)"}},
      .fib_names = {{"gelu_and_mul", "activation", "gelu_and_mul_h", {{"input", "input"}}, {{"out", "output"}}}},
      .cases = {"T=4 D=2048", "T=3 D=1408 --dtype input=f16", "T=5 D=37 --dtype input=f32", "T=2 D=512 --dialect deepseek",
                "T=2 D=512 --dialect trtllm"},
      .bench_cases = {"T=1 D=2048", "T=512 D=2048", "T=512 D=18432"},
  });
}
}  // namespace dodona
