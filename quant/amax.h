// Magnitudes and clamps, with the treatment of NaN that kernels show.
#pragma once

#include <cmath>
#include <limits>
#include <span>

namespace dodona::quant {

/// Largest |x|; NaN elements are ignored, as `fmaxf` ignores them. 0 for an empty span or for NaN alone.
[[gnu::always_inline]] inline float amax(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) {
    const float magnitude = std::fabs(value);
    if (magnitude > largest) largest = magnitude;
  }
  return largest;
}

/// Largest |x|; NaN elements are ignored unless all are NaN, then NaN. This is a reduction that starts from the first element rather than
/// from 0, as the half-precision maxima of the FP4 and MX quantizers do.
[[gnu::always_inline]] inline float amax_or_nan(std::span<const float> x) {
  for (const float value : x) {
    if (!std::isnan(value)) return amax(x);
  }
  return x.empty() ? 0.0f : std::numeric_limits<float>::quiet_NaN();
}

/// Mistake: the largest x, its magnitude forgotten; NaN elements are ignored. -inf for an empty span or for NaN alone.
inline float largest_value(std::span<const float> x) {
  float largest = -std::numeric_limits<float>::infinity();
  for (const float value : x)
    if (value > largest) largest = value;
  return largest;
}

/// fmaxf(fminf(v, high), low): NaN becomes `high`.
[[gnu::always_inline]] inline float clamp_high_first(float v, float low, float high) {
  const float below = v < high ? v : high;
  return below > low ? below : low;
}

/// fminf(fmaxf(v, low), high): NaN becomes `low`.
[[gnu::always_inline]] inline float clamp_low_first(float v, float low, float high) {
  const float above = v > low ? v : low;
  return above < high ? above : high;
}

}  // namespace dodona::quant
