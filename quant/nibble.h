// Two 4-bit codes a byte: element 2j is the low nibble of byte j, element 2j+1 the high one. Eight elements read as one little-endian
// 32-bit word have element i at bits 4i..4i+3.
#pragma once

#include <cstdint>

namespace dodona::quant {

/// Code of element `i` of a packed row.
[[gnu::always_inline]] constexpr std::uint8_t nibble(const std::uint8_t* packed, std::int64_t i) {
  return static_cast<std::uint8_t>((packed[i / 2] >> (i % 2 * 4)) & 0xF);
}

/// Replaces the code of element `i` and leaves its neighbour alone.
[[gnu::always_inline]] constexpr void set_nibble(std::uint8_t* packed, std::int64_t i, unsigned code) {
  const int shift = static_cast<int>(i % 2 * 4);
  const unsigned kept = packed[i / 2] & (0xF0u >> shift);
  packed[i / 2] = static_cast<std::uint8_t>(kept | ((code & 0xFu) << shift));
}

/// The byte of elements 2j (`even`) and 2j+1 (`odd`).
[[gnu::always_inline]] constexpr std::uint8_t pack_nibbles(unsigned even, unsigned odd) {
  return static_cast<std::uint8_t>((even & 0xFu) | ((odd & 0xFu) << 4));
}

/// Two's complement value of a nibble, -8..7.
[[gnu::always_inline]] constexpr int signed_nibble(unsigned code) {
  return static_cast<int>((code & 0xFu) ^ 8u) - 8;
}

}  // namespace dodona::quant
