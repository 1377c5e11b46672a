// FP8 E4M3FN: 1-4-3, bias 7, largest 448 (0x7E), smallest 2^-9, no infinity, NaN 0x7F and 0xFF.
#pragma once

#include <array>
#include <cstdint>

#include "quant/minifloat.h"

namespace dodona::quant {

inline constexpr float e4m3_max = 448.0f;

namespace detail {
constexpr std::array<float, 256> make_e4m3_table() {
  std::array<float, 256> table{};
  for (unsigned code = 0; code < 256; ++code) {
    const float nan = std::bit_cast<float>(0x7FC00000u);
    const float magnitude = (code & 0x7Fu) == 0x7Fu ? nan : static_cast<float>(magnitude_value(code & 0x7Fu, e4m3_shape));
    const std::uint32_t sign = (code & 0x80u) << 24;
    table[code] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  return table;
}
}  // namespace detail

/// Value of every code.
inline constexpr std::array<float, 256> e4m3_table = detail::make_e4m3_table();

[[gnu::always_inline]] constexpr float e4m3_to_f32(std::uint8_t code) {
  return e4m3_table[code];
}

/// To nearest even; everything beyond 448 and infinity becomes 448 with its sign; any NaN becomes 0x7F.
/// Takes a double so that fp32 values pass exactly and golden values are rounded once.
/// Source: CUDA `__nv_fp8_e4m3(float)`, PTX `cvt.rn.satfinite.e4m3x2.f32`.
[[gnu::always_inline]] constexpr std::uint8_t to_e4m3_satfinite(double x) {
  if (is_nan(x)) return 0x7F;
  const std::uint64_t code = is_infinite(x) ? 0x7Eu : round_magnitude(x, e4m3_shape);
  return static_cast<std::uint8_t>((sign_of(x) ? 0x80u : 0u) | (code < 0x7Eu ? code : 0x7Eu));
}

/// To nearest even; 464 is a tie and goes to 448; beyond it, and infinity, NaN with the sign; a NaN becomes 0x7F whatever its sign.
/// Source: CUDA `__nv_cvt_float_to_fp8` with `__NV_NOSAT`.
[[gnu::always_inline]] constexpr std::uint8_t to_e4m3_nosat(double x) {
  if (is_nan(x)) return 0x7F;
  const std::uint64_t code = is_infinite(x) ? 0x7Fu : round_magnitude(x, e4m3_shape);
  return static_cast<std::uint8_t>((sign_of(x) ? 0x80u : 0u) | (code < 0x7Fu ? code : 0x7Fu));
}

/// As `to_e4m3_nosat`, but a NaN keeps its sign.
/// Source: PyTorch `tensor.to(torch.float8_e4m3fn)`.
[[gnu::always_inline]] constexpr std::uint8_t to_e4m3_framework(double x) {
  if (is_nan(x)) return sign_of(x) ? 0xFF : 0x7F;
  return to_e4m3_nosat(x);
}

}  // namespace dodona::quant
