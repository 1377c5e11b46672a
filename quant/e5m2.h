// FP8 E5M2: 1-5-2, bias 15, like IEEE: largest 57344 (0x7B), infinity 0x7C, NaN 0x7D..0x7F, smallest 2^-16.
#pragma once

#include <array>
#include <cstdint>

#include "quant/half.h"
#include "quant/minifloat.h"

namespace dodona::quant {

inline constexpr float e5m2_max = 57344.0f;

namespace detail {
constexpr std::array<float, 256> make_e5m2_table() {
  std::array<float, 256> table{};
  // An e5m2 code is the upper byte of a half.
  for (unsigned code = 0; code < 256; ++code) table[code] = f16_to_f32(static_cast<std::uint16_t>(code << 8));
  return table;
}
}  // namespace detail

/// Value of every code.
inline constexpr std::array<float, 256> e5m2_table = detail::make_e5m2_table();

[[gnu::always_inline]] constexpr float e5m2_to_f32(std::uint8_t code) {
  return e5m2_table[code];
}

/// To nearest even; everything beyond 57344 and infinity becomes 57344 with its sign; any NaN becomes 0x7F.
/// Source: CUDA `__nv_fp8_e5m2(float)`, PTX `cvt.rn.satfinite.e5m2x2.f32`.
[[gnu::always_inline]] constexpr std::uint8_t to_e5m2_satfinite(double x) {
  if (is_nan(x)) return 0x7F;
  const std::uint64_t code = is_infinite(x) ? 0x7Bu : round_magnitude(x, e5m2_shape);
  return static_cast<std::uint8_t>((sign_of(x) ? 0x80u : 0u) | (code < 0x7Bu ? code : 0x7Bu));
}

/// To nearest even; overflow (61440, the tie, included) goes to infinity; a NaN becomes 0x7F with its sign.
/// Source: PyTorch `tensor.to(torch.float8_e5m2)`.
[[gnu::always_inline]] constexpr std::uint8_t to_e5m2_framework(double x) {
  const unsigned sign = sign_of(x) ? 0x80u : 0u;
  if (is_nan(x)) return static_cast<std::uint8_t>(sign | 0x7Fu);
  const std::uint64_t code = is_infinite(x) ? 0x7Cu : round_magnitude(x, e5m2_shape);
  return static_cast<std::uint8_t>(sign | (code < 0x7Cu ? code : 0x7Cu));
}

}  // namespace dodona::quant
