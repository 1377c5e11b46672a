// What vector code may reckon with in registers: how many f32x16 they hold, and loops that have to go so that vectors stay there.
// Included by *.simd.cpp only.
#pragma once

#include "simd/tier.h"

namespace dodona::tier {

/// Vector registers, and how many of them sixteen floats take.
struct Registers {
  int count, of_f32x16;
};
constexpr Registers registers(generic) {
  return {16, 4};
}
constexpr Registers registers(v3) {
  return {16, 2};
}
constexpr Registers registers(v4) {
  return {32, 1};
}
constexpr Registers registers(v4_vnni) {
  return {32, 1};
}
constexpr Registers registers(neon) {
  return {32, 4};
}

}  // namespace dodona::tier

namespace dodona::DODONA_TIER {

inline constexpr tier::Registers registers = tier::registers(tier::DODONA_TIER{});
/// Whether some twenty-four sums of sixteen lanes stay in registers beside what is multiplied; else two vectors side by side are too many.
inline constexpr bool many_sums_fit = registers.count / registers.of_f32x16 >= 32;

}  // namespace dodona::DODONA_TIER

// Before a loop over vectors in registers, which have no index. Without vector registers there is nothing to gain, and much to compile.
#if DODONA_TIER_generic
#define DODONA_UNROLL(count)
#else
#define DODONA_PRAGMA(text) _Pragma(#text)
#define DODONA_UNROLL(count) DODONA_PRAGMA(GCC unroll count)
#endif
