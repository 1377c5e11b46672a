#include "ops/rows/activation/silu.h"

#include <cmath>
#include <limits>

#include "core/fixed_math.h"
#include "core/flaw.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {

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

namespace {

Bounded silu_from_tanh(double g) {
  const auto gate = static_cast<float>(g);
  const double value = gate * (0.5f * quant::hopper::tanhf(0.5f * gate) + 0.5f);
  return {value, 2 * f32_eps * std::fabs(value)};
}

}  // namespace

Silu golden_silu(const Exec& exec) {
  return sigmoid_is_from_tanh(exec) ? silu_from_tanh : silu;
}

float hopper_silu(float g) {
  namespace hw = quant::hopper;
  return hw::div(g, hw::add(1.0f, hw::expf(-g)));
}

}  // namespace dodona::ops
