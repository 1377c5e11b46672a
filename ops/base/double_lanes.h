// Eight doubles at a time, in whatever registers the tier has, for golden mode. Included by *.simd.cpp only. Macros: functions of such
// vectors would have another calling convention on every tier.
#pragma once

#include <cstdint>

#include "simd/tier.h"

namespace dodona::DODONA_TIER {

inline constexpr std::int64_t double_lanes = 8;
typedef double Lanes __attribute__((vector_size(8 * double_lanes)));
/// The same anywhere in memory; and as many integers.
typedef double LanesInMemory __attribute__((vector_size(8 * double_lanes), aligned(8), may_alias));
typedef long long Bits __attribute__((vector_size(8 * double_lanes)));

#define DODONA_LANES(pointer) (*reinterpret_cast<LanesInMemory*>(pointer))
#define DODONA_CONST_LANES(pointer) (*reinterpret_cast<const LanesInMemory*>(pointer))
#define DODONA_MAGNITUDE(x) reinterpret_cast<Lanes>(reinterpret_cast<Bits>(x) & 0x7FFFFFFFFFFFFFFF)
/// As std::max and std::min have it: the first where neither is beyond the other, or the second is NaN.
#define DODONA_LARGER(x, y) ((x) < (y) ? (y) : (x))
#define DODONA_SMALLER(x, y) ((y) < (x) ? (y) : (x))

}  // namespace dodona::DODONA_TIER
