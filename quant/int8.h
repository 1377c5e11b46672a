// float to int8, in the three roundings that are live upstream. All saturate to [-128, 127].
#pragma once

#include <cmath>
#include <cstdint>

#include "quant/amax.h"

namespace dodona::quant {

/// Clamped, then cut toward zero as a C cast does (-3.7 gives -3). NaN gives -128, because the clamp takes the lower bound first.
/// Source: sgl-kernel `sgl_per_token_group_quant_8bit` (both versions), sglang Triton `per_token_group_quant_int8`.
[[gnu::always_inline]] inline std::int8_t to_int8_truncate(float x) {
  return static_cast<std::int8_t>(clamp_low_first(x, -128.0f, 127.0f));
}

/// Half away from zero (2.5 gives 3, -2.5 gives -3). NaN gives 0.
/// Source: sglang Triton `per_token_quant_int8`.
[[gnu::always_inline]] inline std::int8_t to_int8_half_away(float x) {
  if (std::isnan(x)) return 0;
  return static_cast<std::int8_t>(clamp_low_first(std::round(x), -128.0f, 127.0f));
}

/// Half to even (2.5 gives 2, 3.5 gives 4). NaN gives 0.
/// Source: `torch.round`, in the upstream tests' helpers.
[[gnu::always_inline]] inline std::int8_t to_int8_nearest_even(float x) {
  if (std::isnan(x)) return 0;
  return static_cast<std::int8_t>(clamp_low_first(std::nearbyint(x), -128.0f, 127.0f));
}

}  // namespace dodona::quant
