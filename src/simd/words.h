// Thirty-two numbers of sixteen bits, two to a lane of an i32x16, beside those of f32x16.h. Included by *.simd.cpp only.
#pragma once

#include "simd/f32x16.h"

namespace dodona::DODONA_TIER {
namespace lanes {

#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
DODONA_INLINE i32 add_16(i32 a, i32 b) {
  return {_mm512_add_epi16(a.v, b.v)};
}
DODONA_INLINE i32 excess_16(i32 a, i32 b) {
  return {_mm512_subs_epu16(a.v, b.v)};
}
DODONA_INLINE i32 min_16(i32 a, i32 b) {
  return {_mm512_min_epi16(a.v, b.v)};
}
template <int k>
DODONA_INLINE i32 shr_16(i32 a) {
  return {_mm512_srli_epi16(a.v, k)};
}
using words_table = i32;  // twice
DODONA_INLINE words_table words_of(const std::uint8_t* sixteen) {
  return {_mm512_cvtepu8_epi16(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(sixteen))))};
}
DODONA_INLINE i32 lookup_16(words_table table, i32 index) {
  return {_mm512_permutexvar_epi16(index.v, table.v)};
}
#elif DODONA_TIER_v3
DODONA_INLINE i32 add_16(i32 a, i32 b) {
  return {{_mm256_add_epi16(a.lo.v, b.lo.v)}, {_mm256_add_epi16(a.hi.v, b.hi.v)}};
}
DODONA_INLINE i32 excess_16(i32 a, i32 b) {
  return {{_mm256_subs_epu16(a.lo.v, b.lo.v)}, {_mm256_subs_epu16(a.hi.v, b.hi.v)}};
}
DODONA_INLINE i32 min_16(i32 a, i32 b) {
  return {{_mm256_min_epi16(a.lo.v, b.lo.v)}, {_mm256_min_epi16(a.hi.v, b.hi.v)}};
}
template <int k>
DODONA_INLINE i32 shr_16(i32 a) {
  return {{_mm256_srli_epi16(a.lo.v, k)}, {_mm256_srli_epi16(a.hi.v, k)}};
}
using words_table = __m256i;  // of bytes
DODONA_INLINE words_table words_of(const std::uint8_t* sixteen) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(sixteen)));
}
DODONA_INLINE i32 lookup_16(words_table table, i32 index) {
  // Of an index with its highest bit a zero comes.
  const auto one = [&](__m256i x) __attribute__((always_inline)) {
    const __m256i low = _mm256_and_si256(x, _mm256_set1_epi16(15));
    return _mm256_shuffle_epi8(table, _mm256_or_si256(low, _mm256_set1_epi16(static_cast<short>(0x8000))));
  };
  return {{one(index.lo.v)}, {one(index.hi.v)}};
}
#elif DODONA_TIER_neon
template <class Body>
DODONA_INLINE i32 each_of_words(i32 a, i32 b, const Body& body) {
  const auto one = [&](i32x4 x, i32x4 y) {
    return i32x4{vreinterpretq_s32_u16(body(vreinterpretq_u16_s32(x.v), vreinterpretq_u16_s32(y.v)))};
  };
  return {{one(a.lo.lo, b.lo.lo), one(a.lo.hi, b.lo.hi)}, {one(a.hi.lo, b.hi.lo), one(a.hi.hi, b.hi.hi)}};
}
DODONA_INLINE i32 add_16(i32 a, i32 b) {
  return each_of_words(a, b, [](uint16x8_t x, uint16x8_t y) { return vaddq_u16(x, y); });
}
DODONA_INLINE i32 excess_16(i32 a, i32 b) {
  return each_of_words(a, b, [](uint16x8_t x, uint16x8_t y) { return vqsubq_u16(x, y); });
}
DODONA_INLINE i32 min_16(i32 a, i32 b) {
  return each_of_words(a, b, [](uint16x8_t x, uint16x8_t y) {
    return vreinterpretq_u16_s16(vminq_s16(vreinterpretq_s16_u16(x), vreinterpretq_s16_u16(y)));
  });
}
template <int k>
DODONA_INLINE i32 shr_16(i32 a) {
  return each_of_words(a, a, [](uint16x8_t x, uint16x8_t) { return vshrq_n_u16(x, k); });
}
using words_table = uint8x16_t;
DODONA_INLINE words_table words_of(const std::uint8_t* sixteen) {
  return vld1q_u8(sixteen);
}
DODONA_INLINE i32 lookup_16(words_table table, i32 index) {
  return each_of_words(index, index, [&](uint16x8_t x, uint16x8_t) {
    const uint16x8_t low = vandq_u16(x, vdupq_n_u16(15));
    return vreinterpretq_u16_u8(vqtbl1q_u8(table, vreinterpretq_u8_u16(vorrq_u16(low, vdupq_n_u16(0xFF00)))));
  });
}
#else
template <class Body>
DODONA_INLINE i32 each_of_words(i32 a, i32 b, const Body& body) {
  i32 r;
  for (int lane = 0; lane < 16; ++lane) {
    const auto low = static_cast<std::uint16_t>(body(static_cast<std::uint16_t>(a.x[lane]), static_cast<std::uint16_t>(b.x[lane])));
    const auto high =
        static_cast<std::uint16_t>(body(static_cast<std::uint16_t>(a.x[lane] >> 16), static_cast<std::uint16_t>(b.x[lane] >> 16)));
    r.x[lane] = low | static_cast<std::uint32_t>(high) << 16;
  }
  return r;
}
DODONA_INLINE i32 add_16(i32 a, i32 b) {
  return each_of_words(a, b, [](std::uint16_t x, std::uint16_t y) { return x + y; });
}
DODONA_INLINE i32 excess_16(i32 a, i32 b) {
  return each_of_words(a, b, [](std::uint16_t x, std::uint16_t y) { return x > y ? x - y : 0; });
}
DODONA_INLINE i32 min_16(i32 a, i32 b) {
  return each_of_words(
      a, b, [](std::uint16_t x, std::uint16_t y) { return static_cast<std::int16_t>(x) < static_cast<std::int16_t>(y) ? x : y; });
}
template <int k>
DODONA_INLINE i32 shr_16(i32 a) {
  return each_of_words(a, a, [](std::uint16_t x, std::uint16_t) { return x >> k; });
}
struct words_table {
  std::uint8_t x[16];
};
DODONA_INLINE words_table words_of(const std::uint8_t* sixteen) {
  words_table table;
  for (int i = 0; i < 16; ++i) table.x[i] = sixteen[i];
  return table;
}
DODONA_INLINE i32 lookup_16(const words_table& table, i32 index) {
  return each_of_words(index, index, [&](std::uint16_t x, std::uint16_t) { return table.x[x & 15]; });
}
#endif

}  // namespace lanes

/// x in both halves of every lane.
DODONA_INLINE i32x16 splat_16(std::int32_t x) {
  return i32x16::splat(static_cast<std::int32_t>(static_cast<std::uint32_t>(x) * 0x10001u));
}
/// Wraps.
DODONA_INLINE i32x16 add_16(i32x16 a, i32x16 b) {
  return {lanes::add_16(a.v, b.v)};
}
/// By how much a is above b, neither with a sign; 0 where it is not.
DODONA_INLINE i32x16 excess_16(i32x16 a, i32x16 b) {
  return {lanes::excess_16(a.v, b.v)};
}
/// The lesser of two signed ones.
DODONA_INLINE i32x16 min_16(i32x16 a, i32x16 b) {
  return {lanes::min_16(a.v, b.v)};
}
/// Zeros come in.
template <int k>
DODONA_INLINE i32x16 shr_16(i32x16 a) {
  return {lanes::shr_16<k>(a.v)};
}
/// Sixteen numbers below 256, and those that the low four bits of each number say, from 0 on.
struct Sixteen {
  lanes::words_table v;
  static DODONA_INLINE Sixteen of(const std::uint8_t (&sixteen)[16]) { return {lanes::words_of(sixteen)}; }
  DODONA_INLINE i32x16 operator[](i32x16 index) const { return {lanes::lookup_16(v, index.v)}; }
};

}  // namespace dodona::DODONA_TIER
