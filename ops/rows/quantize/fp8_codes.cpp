#include "ops/rows/quantize/fp8_codes.h"

#include <cmath>

namespace dodona::ops {

/// fl32(1/448) is within 2^-24 of 1/448, so the two ways to divide differ by that; a build with fast math may have 0 for a denormal.
Bounded fp8_scale(float amax, bool true_division, double largest) {
  const double wide = amax;
  const double scale = true_division ? wide / largest : wide * static_cast<double>(1.0f / static_cast<float>(largest));
  if (!std::isfinite(scale)) return {scale};
  return rounded_f32({scale}).widened(may_flush(scale) ? std::fabs(scale) : 0.0);
}

void put_fp8_codes(const GoldenOutput& codes, std::int64_t first, std::span<const float> x, float scale, bool open) {
  constexpr auto largest_code = static_cast<float>(quant::e4m3_max);
  const float factor = scale != 0 ? 1.0f / scale : 0.0f;
  for (std::size_t k = 0; k < x.size(); ++k) {
    const float element = x[k];
    float v = element * factor;
    if (std::isnan(v)) v = largest_code;  // fmaxf(fminf(v, 448), -448)
    // Units of 2^-24 relative: 2 for a reciprocal off by a unit in the last place and 1 for ours, 1 for the rounding of each product.
    // A denormal element may count as zero.
    const double magnitude = std::fabs(static_cast<double>(v));
    Bounded code{v, std::isnan(element) ? 0.0 : magnitude * 5 * f32_eps, open && !std::isnan(element)};
    if (element != 0 && std::fabs(element) < flush_floor) code = code.widened(magnitude);
    // Likewise a denormal factor: zero times infinity is NaN.
    if (may_flush(factor)) code = std::isinf(element) ? Bounded{v, 0.0, true} : code.widened(magnitude);
    codes.put_saturating(first + static_cast<std::int64_t>(k), code);
  }
}

}  // namespace dodona::ops
