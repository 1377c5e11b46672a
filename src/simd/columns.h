// Lines of sixteen columns in memory, word by word. Included by *.simd.cpp only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simd/f32x16.h"
#include "simd/registers.h"

namespace dodona::DODONA_TIER {

#if DODONA_TIER_v3
/// Four words of eight columns: word i of all of them in words[i].
DODONA_INLINE void four_words(const std::byte* first, std::int64_t stride, lanes::i32x8 (&words)[4]) {
  __m256 rows[4];  // of columns j and j + 4
  DODONA_UNROLL(4)
  for (int j = 0; j < 4; ++j) {
    const auto at = [&](int column) { return _mm_loadu_ps(reinterpret_cast<const float*>(first + column * stride)); };
    rows[j] = _mm256_insertf128_ps(_mm256_castps128_ps256(at(j)), at(j + 4), 1);
  }
  const __m256 low[2] = {_mm256_unpacklo_ps(rows[0], rows[1]), _mm256_unpacklo_ps(rows[2], rows[3])};
  const __m256 high[2] = {_mm256_unpackhi_ps(rows[0], rows[1]), _mm256_unpackhi_ps(rows[2], rows[3])};
  words[0] = {_mm256_castps_si256(_mm256_shuffle_ps(low[0], low[1], 0x44))};
  words[1] = {_mm256_castps_si256(_mm256_shuffle_ps(low[0], low[1], 0xEE))};
  words[2] = {_mm256_castps_si256(_mm256_shuffle_ps(high[0], high[1], 0x44))};
  words[3] = {_mm256_castps_si256(_mm256_shuffle_ps(high[0], high[1], 0xEE))};
}

/// What each_word_of_columns does, of eight columns.
template <class Body>
DODONA_INLINE void each_word_of_eight(const std::byte* first, std::int64_t stride, const Body& body) {
  for (int w = 0; w < 16; w += 4) {
    lanes::i32x8 words[4];
    four_words(first + 4 * w, stride, words);
    DODONA_UNROLL(4)
    for (int i = 0; i < 4; ++i) body(w + i, words[i]);
  }
}
#endif

#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
/// Four words of sixteen columns: word i of all of them in words[i].
DODONA_INLINE void four_words(const std::byte* first, std::int64_t stride, i32x16 (&words)[4]) {
  __m512i rows[4];  // of columns j, j + 4, j + 8 and j + 12
  DODONA_UNROLL(4)
  for (int j = 0; j < 4; ++j) {
    const auto at = [&](int column) __attribute__((always_inline)) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(first + column * stride));
    };
    rows[j] = _mm512_broadcast_i32x4(at(j));
    rows[j] = _mm512_mask_broadcast_i32x4(rows[j], 0x00F0, at(j + 4));
    rows[j] = _mm512_mask_broadcast_i32x4(rows[j], 0x0F00, at(j + 8));
    rows[j] = _mm512_mask_broadcast_i32x4(rows[j], 0xF000, at(j + 12));
  }
  const __m512i low[2] = {_mm512_unpacklo_epi32(rows[0], rows[1]), _mm512_unpacklo_epi32(rows[2], rows[3])};
  const __m512i high[2] = {_mm512_unpackhi_epi32(rows[0], rows[1]), _mm512_unpackhi_epi32(rows[2], rows[3])};
  words[0] = {{_mm512_unpacklo_epi64(low[0], low[1])}};
  words[1] = {{_mm512_unpackhi_epi64(low[0], low[1])}};
  words[2] = {{_mm512_unpacklo_epi64(high[0], high[1])}};
  words[3] = {{_mm512_unpackhi_epi64(high[0], high[1])}};
}
#endif

/// Sixty-four bytes of sixteen columns that lie `stride` bytes apart: body(w, words) for every w below 16, where lane j of `words` has the
/// four bytes w of column j.
template <class Body>
DODONA_INLINE void each_word_of_columns(const std::byte* first, std::int64_t stride, const Body& body) {
#if DODONA_TIER_v3
  // Four words at a time stay in registers, where all sixteen do not.
  for (int w = 0; w < 16; w += 4) {
    lanes::i32x8 low[4], high[4];
    four_words(first + 4 * w, stride, low);
    four_words(first + 4 * w + 8 * stride, stride, high);
    DODONA_UNROLL(4)
    for (int i = 0; i < 4; ++i) body(w + i, i32x16{{low[i], high[i]}});
  }
#else
  i32x16 words[16];
  DODONA_UNROLL(4)
  for (int four = 0; four < 16; four += 4) {
    const std::byte* const p = first + four * stride;
    DODONA_UNROLL(4)
    for (int j = 0; j < 4; ++j) words[four + j] = i32x16::load(reinterpret_cast<const std::int32_t*>(p + j * stride));
  }
  transpose(words);
  DODONA_UNROLL(16)
  for (int w = 0; w < 16; ++w) body(w, words[w]);
#endif
}

}  // namespace dodona::DODONA_TIER
