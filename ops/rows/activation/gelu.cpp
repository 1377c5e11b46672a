#include "ops/rows/activation/gelu.h"

#include <algorithm>
#include <cmath>

#include "core/fixed_math.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

/// 1/sqrt(2) as the kernels have it, in fp32.
constexpr float sqrt_half = 0.70710678f;

/// sqrt(2/pi) and the cubic's coefficient as the kernels have them, in fp32.
constexpr float sqrt_two_over_pi = 0.7978845608028654f, cubic = 0.044715f;

}  // namespace

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

float hopper_gelu(float g) {
  namespace hw = quant::hopper;
  return hw::mul(g, hw::mul(0.5f, hw::add(1.0f, hw::erff(hw::mul(g, sqrt_half)))));
}

float hopper_gelu_tanh(float g) {
  namespace hw = quant::hopper;
  const float inner = hw::fma(hw::mul(hw::mul(cubic, g), g), g, g);
  return hw::mul(g, hw::mul(0.5f, hw::add(1.0f, hw::tanh(hw::mul(sqrt_two_over_pi, inner)))));
}

}  // namespace dodona::ops
