// Numbers looked up by codes of sixteen bits, all of which a table has. Included by *.simd.cpp only.
#pragma once

#include <cstdint>

#include "simd/f32x16.h"

namespace dodona::DODONA_TIER {

inline constexpr std::int32_t codes_of_16_bits = 1 << 16;

/// Whether that takes less than what a table may be made of, a function of some twenty operations: where sixteen registers of eight lanes
/// leave no room for enough of them side by side.
#if DODONA_TIER_v3
inline constexpr bool codes_are_looked_up = true;
#else
inline constexpr bool codes_are_looked_up = false;
#endif

/// Of sixteen codes, each `step` codes behind the one before.
template <int step>
DODONA_INLINE f32x16 by_code(const float* table, const void* codes) {
#if DODONA_TIER_v3
  const auto* const c = static_cast<const std::uint16_t*>(codes);
  const auto eight = [&](int k) __attribute__((always_inline)) {
    const auto of = [&](int i) __attribute__((always_inline)) {
      return table[c[(k + i) * step]];
    };
    return lanes::f32x8{_mm256_setr_ps(of(0), of(1), of(2), of(3), of(4), of(5), of(6), of(7))};
  };
  return {{eight(0), eight(8)}};
#else
  float numbers[16];
  for (int i = 0; i < 16; ++i) {
    std::uint16_t code;
    __builtin_memcpy(&code, static_cast<const char*>(codes) + 2 * step * i, sizeof code);
    numbers[i] = table[code];
  }
  return f32x16::load(numbers);
#endif
}

}  // namespace dodona::DODONA_TIER
