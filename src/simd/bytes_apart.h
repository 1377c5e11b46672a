// Exact products of bytes where the hardware has none: the bytes of words taken apart, two and two, as 16-bit numbers. Once they are, four
// products take no more than where bytes must not be large. Included by *.simd.cpp only.
#pragma once

#include "simd/words.h"

namespace dodona::DODONA_TIER {

/// Whether products of any bytes (dot_i8.h) would take them apart each time.
#if DODONA_TIER_v3
inline constexpr bool bytes_go_apart = true;
#else
inline constexpr bool bytes_go_apart = false;
#endif

/// Bytes 0 and 2 of every word, and bytes 1 and 3.
struct BytesApart {
  i32x16 even, odd;
};
DODONA_INLINE BytesApart unsigned_apart(i32x16 words) {
  return {words & i32x16::splat(0x00FF00FF), shr_16<8>(words)};
}
DODONA_INLINE BytesApart signed_apart(i32x16 words) {
  return {sra_16<8>(shl<8>(words)), sra_16<8>(words)};
}
/// The same sixteen times as large, beside any bits below.
DODONA_INLINE BytesApart signed_apart_16_times(i32x16 words) {
#if DODONA_TIER_v3
  const auto products = [&](int of_odd_and_even) __attribute__((always_inline)) {
    const __m256i factors = _mm256_set1_epi16(static_cast<short>(of_odd_and_even));
    return i32x16{{{_mm256_maddubs_epi16(factors, words.v.lo.v)}, {_mm256_maddubs_epi16(factors, words.v.hi.v)}}};
  };
  return {products(0x0010), products(0x1000)};
#else
  return {sra_16<4>(shl<8>(words)), sra_16<4>(words)};
#endif
}

/// sum + the products of both 16-bit numbers of every lane.
DODONA_INLINE i32x16 add_pairs(i32x16 sum, i32x16 a, i32x16 b) {
#if DODONA_TIER_v3
  const __m256i low = _mm256_madd_epi16(a.v.lo.v, b.v.lo.v), high = _mm256_madd_epi16(a.v.hi.v, b.v.hi.v);
  return {{{_mm256_add_epi32(sum.v.lo.v, low)}, {_mm256_add_epi32(sum.v.hi.v, high)}}};
#else
  return sum + sra<16>(shl<16>(a)) * sra<16>(shl<16>(b)) + sra<16>(a) * sra<16>(b);
#endif
}

}  // namespace dodona::DODONA_TIER
