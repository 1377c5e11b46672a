// What is left of comparing the lanes of blocks with each other. Included by *.simd.cpp only.
#pragma once

#include "simd/f32x16.h"

namespace dodona::DODONA_TIER {

struct i32x16_pair {
  i32x16 first, second;
};

#if DODONA_TIER_v3
namespace lanes {
/// Of the lanes of x and y those of even index and those of odd index, or, of the last two vectors, their low halves and their high ones.
template <bool last>
DODONA_INLINE void apart(i32x8& x, i32x8& y) {
  const __m256 p = _mm256_castsi256_ps(x.v), q = _mm256_castsi256_ps(y.v);
  x = {_mm256_castps_si256(last ? _mm256_permute2f128_ps(p, q, 0x20) : _mm256_shuffle_ps(p, q, 0x88))};
  y = {_mm256_castps_si256(last ? _mm256_permute2f128_ps(p, q, 0x31) : _mm256_shuffle_ps(p, q, 0xDD))};
}
}  // namespace lanes
#endif

/// Two vectors of blocks side by side, all of one size, and half the lanes of each block in either result, to be combined lane by lane. Of
/// as many vectors as a block has lanes, combined two by two, neighbours first, one is left, whose lane i is of block i; `left` is how many
/// vectors there are once a step is done. Lanes are in order at the end alone: in between that costs an AVX2 half of all its shuffles.
template <int left>
DODONA_INLINE i32x16_pair blocks_apart(i32x16 a, i32x16 b) {
#if DODONA_TIER_v3
  if constexpr (left < 8) {
    lanes::apart<left == 1>(a.v.lo, a.v.hi);
    lanes::apart<left == 1>(b.v.lo, b.v.hi);
  }
  return {{{a.v.lo, b.v.lo}}, {{a.v.hi, b.v.hi}}};
#else
  const f32x16_pair split = deinterleave(as_f32(a), as_f32(b));
  return {as_i32(split.first), as_i32(split.second)};
#endif
}

}  // namespace dodona::DODONA_TIER
