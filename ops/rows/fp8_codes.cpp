#include "ops/rows/fp8_codes.h"

#include <cmath>

namespace dodona::ops {

double fp8_scale(float amax, bool true_division) {
  const double wide = amax;
  return true_division ? wide / quant::e4m3_max : wide * static_cast<double>(1.0f / static_cast<float>(quant::e4m3_max));
}

/// fl32(1/448) is within 2^-24 of 1/448, so the two ways to divide differ by that; a build with fast math may have 0 for a denormal.
double fp8_scale_slack(double scale) {
  if (!std::isfinite(scale)) return 0.0;
  return scale * f32_eps + (may_flush(scale) ? scale : 0.0);
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
    double slack = std::isfinite(v) && !std::isnan(element) ? std::fabs(static_cast<double>(v)) * 5 * f32_eps : 0.0;
    if (element != 0 && std::fabs(element) < flush_floor) slack += std::fabs(static_cast<double>(v));
    if (open && !std::isnan(element)) {
      codes.put_saturating_open(first + static_cast<std::int64_t>(k), v);
    } else {
      codes.put_saturating(first + static_cast<std::int64_t>(k), v, slack);
    }
  }
}

}  // namespace dodona::ops
