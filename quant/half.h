// bfloat16 and IEEE half: widening is exact, narrowing is one rounding to nearest even.
//
// Overflow gives infinity, denormals are kept. Narrowing any NaN gives 0x7FFF, as the hardware conversions do; widening a NaN keeps sign
// and payload (a half NaN is made quiet).
#pragma once

#include <bit>
#include <cstdint>

#include "quant/minifloat.h"

namespace dodona::quant {

[[gnu::always_inline]] constexpr float bf16_to_f32(std::uint16_t code) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16);
}

[[gnu::always_inline]] constexpr std::uint16_t f32_to_bf16(float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;
  return static_cast<std::uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

[[gnu::always_inline]] constexpr float f16_to_f32(std::uint16_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x8000u) << 16;
  const std::uint32_t magnitude = code & 0x7FFFu;
  if (magnitude >= 0x7C00u) {
    const std::uint32_t quiet = magnitude > 0x7C00u ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13) | quiet);
  }
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

[[gnu::always_inline]] constexpr std::uint16_t f32_to_f16(float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (u >> 16) & 0x8000u;
  const std::uint32_t magnitude = u & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return 0x7FFF;
  if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // 65536 and above
  if (magnitude >= 0x38800000u) {  // normal halves, and those that round up to infinity by carry
    const std::uint32_t rebased = magnitude - (112u << 23);
    return static_cast<std::uint16_t>(sign | ((rebased + 0xFFFu + ((rebased >> 13) & 1u)) >> 13));
  }
  const int exponent = static_cast<int>(magnitude >> 23);
  if (exponent < 102) return static_cast<std::uint16_t>(sign);  // below 2^-25, half of the smallest value
  const std::uint32_t significand = (magnitude & 0x7FFFFFu) | 0x800000u;
  const int dropped = 126 - exponent;
  const std::uint32_t kept = significand >> dropped;
  const std::uint32_t rest = significand & ((1u << dropped) - 1u);
  const std::uint32_t half = 1u << (dropped - 1);
  const std::uint32_t up = (rest > half || (rest == half && (kept & 1u) != 0)) ? 1u : 0u;
  return static_cast<std::uint16_t>(sign | (kept + up));
}

/// One rounding, where going through fp32 would round twice.
[[gnu::always_inline]] constexpr std::uint16_t f64_to_bf16(double x) {
  if (is_nan(x)) return 0x7FFF;
  const std::uint64_t sign = sign_of(x) ? 0x8000u : 0u;
  const std::uint64_t code = is_infinite(x) ? 0x7F80u : round_magnitude(x, bf16_shape);
  return static_cast<std::uint16_t>(sign | (code < 0x7F80u ? code : 0x7F80u));
}

/// One rounding, where going through fp32 would round twice.
[[gnu::always_inline]] constexpr std::uint16_t f64_to_f16(double x) {
  if (is_nan(x)) return 0x7FFF;
  const std::uint64_t sign = sign_of(x) ? 0x8000u : 0u;
  const std::uint64_t code = is_infinite(x) ? 0x7C00u : round_magnitude(x, f16_shape);
  return static_cast<std::uint16_t>(sign | (code < 0x7C00u ? code : 0x7C00u));
}

/// The language's own conversion: to nearest even, overflow to infinity.
[[gnu::always_inline]] constexpr float f64_to_f32(double x) {
  return static_cast<float>(x);
}

}  // namespace dodona::quant
