// Stores past the caches. Included by *.simd.cpp only.
#pragma once

#include "simd/f32x16.h"

namespace dodona::DODONA_TIER {

/// Writes 64 bytes past the caches where the tier can, else as any store. `p` is a multiple of 64. What was written so is seen by other
/// threads after stream_end().
DODONA_INLINE void stream(i32x16 x, void* p) {
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
  _mm512_stream_si512(static_cast<__m512i*>(p), x.v.v);
#elif DODONA_TIER_v3
  __m256i halves[2];
  __builtin_memcpy(halves, &x, sizeof halves);
  _mm256_stream_si256(static_cast<__m256i*>(p), halves[0]);
  _mm256_stream_si256(static_cast<__m256i*>(p) + 1, halves[1]);
#else
  x.store(static_cast<std::int32_t*>(p));
#endif
}
DODONA_INLINE void stream_end() {
#if DODONA_TIER_v3 || DODONA_TIER_v4 || DODONA_TIER_v4_vnni
  _mm_sfence();
#endif
}

}  // namespace dodona::DODONA_TIER
