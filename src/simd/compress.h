// Lanes that are left of a vector, one behind the other. Included by *.simd.cpp only.
#pragma once

#include "simd/f32x16.h"

namespace dodona::DODONA_TIER {
namespace lanes {

#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
/// Compressing stores are slow on some processors.
DODONA_INLINE void compress(i32 x, std::uint32_t kept, std::int32_t* p) {
  _mm512_storeu_si512(p, _mm512_maskz_compress_epi32(static_cast<__mmask16>(kept), x.v));
}
#elif DODONA_TIER_v3
/// Byte k of a row: the index of the k-th bit that is set in the row's number.
struct SetBits {
  std::uint64_t row[256];
};
constexpr SetBits set_bits = [] {
  SetBits bits{};
  for (std::uint32_t number = 0; number < 256; ++number) {
    int k = 0;
    for (std::uint64_t i = 0; i < 8; ++i)
      if ((number >> i & 1) != 0) bits.row[number] |= i << (8 * k++);
  }
  return bits;
}();
DODONA_INLINE void compress(__m256i x, std::uint32_t kept, std::int32_t* p) {
  const __m256i order = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(set_bits.row[kept])));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permutevar8x32_epi32(x, order));
}
DODONA_INLINE void compress(i32 x, std::uint32_t kept, std::int32_t* p) {
  compress(x.lo.v, kept & 0xFF, p);
  compress(x.hi.v, kept >> 8, p + __builtin_popcount(kept & 0xFF));
}
#else
DODONA_INLINE void compress(i32 x, std::uint32_t kept, std::int32_t* p) {
  std::int32_t all[16];
  x.store(all);
  for (; kept != 0; kept &= kept - 1) *p++ = all[__builtin_ctz(kept)];
}
#endif

}  // namespace lanes

/// Writes the lanes of x that `kept` has, in order, and says how many these are. What follows them, as far as sixteen, is overwritten.
DODONA_INLINE int compress(i32x16 x, mask16 kept, std::int32_t* p) {
  const std::uint32_t bits = kept.bits();
  lanes::compress(x.v, bits, p);
  return __builtin_popcount(bits);
}

}  // namespace dodona::DODONA_TIER
