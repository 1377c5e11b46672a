// Quantization to e4m3 in golden mode: a scale with its slack, and codes given a scale.
#pragma once

#include <cstdint>
#include <span>

#include "ops/base/golden_output.h"
#include "quant/e4m3.h"

namespace dodona::ops {

/// The scale at which `amax` becomes the largest code, before its rounding to fp32: amax / 448, or with fast math amax * fl32(1/448).
/// Slack: what either way to divide, and a build that flushes denormals, may give in its place.
/// `largest`: 448, or a mistake in its place.
Bounded fp8_scale(float amax, bool true_division, double largest = quant::e4m3_max);
/// The largest code of another vendor's e4m3, which kernels take for this one's.
inline constexpr double largest_code_elsewhere = 240;

/// Codes of x from position `first` on: e4m3(x * (1 / scale)), zeros for a scale of 0; NaN becomes +448. `open`: the scale's reciprocal
/// may be anything, and only what NaN becomes is known.
void put_fp8_codes(const GoldenOutput& codes, std::int64_t first, std::span<const float> x, float scale, bool open);

}  // namespace dodona::ops
