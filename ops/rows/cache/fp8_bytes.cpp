#include "ops/rows/cache/fp8_bytes.h"

#include <algorithm>
#include <cmath>

#include "ops/base/golden_output.h"
#include "ops/rows/quantize/fp8_codes.h"
#include "quant/amax.h"

namespace dodona::ops {
namespace {

/// Before its rounding: either way to divide.
Bounded scale_of(std::span<const float> x, float least, float (*amax)(std::span<const float>)) {
  const Bounded scale = fp8_scale(std::max(least, amax(x)), true);
  return scale.exact == 0 ? Bounded{0.0} : scale;
}
bool has_open_codes(float scale) {
  return !std::isfinite(scale) || !(scale >= 0x1p-126f);
}
/// What is rounded to a code.
Bounded code_value(float x, float scale, double units = 0) {
  const double value = static_cast<double>(x) / static_cast<double>(scale);
  return {std::clamp(value, -448.0, 448.0), std::fabs(value) * units * f32_eps, std::isnan(x)};
}
std::uint8_t code_of(double value) {
  return static_cast<std::uint8_t>(GoldenOutput::saturating_code(DType::f8_e4m3, value));
}

Fp8Bytes with_scale(std::span<const float> x, float scale) {
  Fp8Bytes bytes{scale, {}, {}};
  for (const float value : x) {
    const bool open = has_open_codes(scale) || std::isnan(value);
    bytes.open.push_back(open);
    bytes.codes.push_back(open ? 0 : code_of(code_value(value, scale).exact));
  }
  return bytes;
}

}  // namespace

Fp8Bytes fp8_bytes(std::span<const float> x, float least, ScaleMade made) {
  const double largest = made == ScaleMade::for_240 ? 240 : made == ScaleMade::for_224 ? 224 : 448;
  const auto amax = made == ScaleMade::of_values ? quant::largest_value : static_cast<float (*)(std::span<const float>)>(quant::amax);
  const auto scale = static_cast<float>(scale_of(x, least, amax).exact * (448 / largest));
  const float power = scale > 0 ? std::exp2(std::ceil(std::log2(scale))) : scale;
  Fp8Bytes bytes = with_scale(x, made == ScaleMade::as_power ? power : scale);
  if (made == ScaleMade::stored_as_power) bytes.scale = power;
  return bytes;
}

Fp8Bytes conditioned_fp8_bytes(std::span<const float> x, float least, float stored_scale, std::span<const std::byte> stored_codes,
                               const Fp8Freedom& freedom) {
  const Bounded of_rule = scale_of(x, least, quant::amax),
                exact = of_rule.widened(freedom.scale_units * f32_eps * std::fabs(of_rule.exact));
  const bool possible =
      stored_scale >= static_cast<float>(exact.exact - exact.slack) && stored_scale <= static_cast<float>(exact.exact + exact.slack);
  Fp8Bytes bytes = with_scale(x, possible ? stored_scale : static_cast<float>(exact.exact));
  for (std::size_t k = 0; k < x.size(); ++k) {
    if (bytes.open[k]) continue;
    const Bounded value = code_value(x[k], bytes.scale, freedom.code_units);
    const auto stored = static_cast<std::uint8_t>(stored_codes[k]);
    if (stored == code_of(value.exact - value.slack) || stored == code_of(value.exact + value.slack)) bytes.codes[k] = stored;
  }
  return bytes;
}

}  // namespace dodona::ops
