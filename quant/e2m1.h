// FP4 E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign bit (code 8 and up). No infinity, no NaN.
#pragma once

#include <array>
#include <cstdint>

#include "quant/minifloat.h"

namespace dodona::quant {

inline constexpr float e2m1_max = 6.0f;

/// Value of every code.
inline constexpr std::array<float, 16> e2m1_table{0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                                  -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

/// Twice the value of every code: small integers, so that products of blocks are exact in integers. The sign of -0 is lost.
inline constexpr std::array<std::int8_t, 16> e2m1_doubled{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

[[gnu::always_inline]] constexpr float e2m1_to_f32(unsigned code) {
  return e2m1_table[code & 0xFu];
}

/// To nearest even, saturating at 6. The sign is kept, also on results that round to zero; any NaN becomes +6 (code 7).
/// Source: PTX `cvt.rn.satfinite.e2m1x2.f32`.
[[gnu::always_inline]] constexpr std::uint8_t to_e2m1(double x) {
  if (is_nan(x)) return 0x7;
  const std::uint64_t code = is_infinite(x) ? 7u : round_magnitude(x, e2m1_shape);
  return static_cast<std::uint8_t>((sign_of(x) ? 8u : 0u) | (code < 7u ? code : 7u));
}

/// To nearest, every tie toward zero; positive and negative zero inputs both become code 8, negative results keep their sign.
/// For reading what others wrote; no kernel does this. A NaN counts as zero.
/// Source: sglang `MXFP4QuantizeUtil`.
[[gnu::always_inline]] constexpr std::uint8_t to_e2m1_mxfp4_util(double x) {
  constexpr std::array<double, 7> bounds{0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0};
  const double magnitude = x < 0 ? -x : x;
  unsigned code = 0;
  for (const double bound : bounds) code += magnitude > bound ? 1u : 0u;
  return static_cast<std::uint8_t>((x > 0 ? 0u : 8u) | code);
}

}  // namespace dodona::quant
