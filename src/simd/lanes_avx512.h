// Sixteen lanes in one AVX-512 register. See f32x16.h for what each operation promises.
//
// xsimd holds the registers and does what it does in one instruction of ours; its 8.1 `fma` multiplies and adds with two roundings here.
#pragma once

// GCC 12's own AVX-512 header leaves the unused pass-through operand of many instructions uninitialized, and GCC then warns about it.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstdint>
#include <xsimd/xsimd.hpp>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include "simd/inline.h"

namespace dodona::DODONA_TIER::lanes {

using f32_batch = xsimd::batch<float, xsimd::avx512bw>;
using i32_batch = xsimd::batch<std::int32_t, xsimd::avx512bw>;

DODONA_INLINE std::uint32_t first_bits(int n) {
  return _bzhi_u32(0xFFFFu, static_cast<std::uint32_t>(n));
}

struct f32 {
  f32_batch v;

  static DODONA_INLINE f32 load(const float* p) { return {f32_batch::load_unaligned(p)}; }
  static DODONA_INLINE f32 load_first(const float* p, int n) { return {_mm512_maskz_loadu_ps(static_cast<__mmask16>(first_bits(n)), p)}; }
  static DODONA_INLINE f32 splat(float x) { return {f32_batch(x)}; }
  DODONA_INLINE void store(float* p) const { v.store_unaligned(p); }
  DODONA_INLINE void store_first(float* p, int n) const { _mm512_mask_storeu_ps(p, static_cast<__mmask16>(first_bits(n)), v); }
};

struct i32 {
  i32_batch v;

  static DODONA_INLINE i32 load(const std::int32_t* p) { return {_mm512_loadu_si512(p)}; }
  static DODONA_INLINE i32 load_first(const std::int32_t* p, int n) {
    return {_mm512_maskz_loadu_epi32(static_cast<__mmask16>(first_bits(n)), p)};
  }
  static DODONA_INLINE i32 splat(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
  DODONA_INLINE void store(std::int32_t* p) const { _mm512_storeu_si512(p, v); }
  DODONA_INLINE void store_first(std::int32_t* p, int n) const { _mm512_mask_storeu_epi32(p, static_cast<__mmask16>(first_bits(n)), v); }
};

struct mask {
  __mmask16 v;

  static DODONA_INLINE mask from_bits(std::uint32_t bits) { return {static_cast<__mmask16>(bits)}; }
  DODONA_INLINE std::uint32_t to_bits() const { return v; }
};

DODONA_INLINE f32 add(f32 a, f32 b) {
  return {a.v + b.v};
}
DODONA_INLINE f32 sub(f32 a, f32 b) {
  return {a.v - b.v};
}
DODONA_INLINE f32 mul(f32 a, f32 b) {
  return {a.v * b.v};
}
DODONA_INLINE f32 div(f32 a, f32 b) {
  return {a.v / b.v};
}
DODONA_INLINE f32 fma(f32 a, f32 b, f32 c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
DODONA_INLINE f32 fnma(f32 a, f32 b, f32 c) {
  return {_mm512_fnmadd_ps(a.v, b.v, c.v)};
}
DODONA_INLINE f32 fms(f32 a, f32 b, f32 c) {
  return {_mm512_fmsub_ps(a.v, b.v, c.v)};
}
DODONA_INLINE f32 min(f32 a, f32 b) {
  return {_mm512_min_ps(a.v, b.v)};
}
DODONA_INLINE f32 max(f32 a, f32 b) {
  return {_mm512_max_ps(a.v, b.v)};
}
DODONA_INLINE f32 sqrt(f32 a) {
  return {xsimd::sqrt(a.v)};
}
DODONA_INLINE f32 floor(f32 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
}
DODONA_INLINE f32 round_even(f32 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

DODONA_INLINE mask lt(f32 a, f32 b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
}
DODONA_INLINE mask le(f32 a, f32 b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)};
}
DODONA_INLINE mask eq(f32 a, f32 b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)};
}
DODONA_INLINE f32 select(mask m, f32 a, f32 b) {
  return {_mm512_mask_blend_ps(m.v, b.v, a.v)};
}

DODONA_INLINE i32 add(i32 a, i32 b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
DODONA_INLINE i32 sub(i32 a, i32 b) {
  return {_mm512_sub_epi32(a.v, b.v)};
}
DODONA_INLINE i32 mul(i32 a, i32 b) {
  return {_mm512_mullo_epi32(a.v, b.v)};
}
DODONA_INLINE i32 min(i32 a, i32 b) {
  return {_mm512_min_epi32(a.v, b.v)};
}
DODONA_INLINE i32 max(i32 a, i32 b) {
  return {_mm512_max_epi32(a.v, b.v)};
}
DODONA_INLINE i32 bit_and(i32 a, i32 b) {
  return {_mm512_and_si512(a.v, b.v)};
}
DODONA_INLINE i32 bit_or(i32 a, i32 b) {
  return {_mm512_or_si512(a.v, b.v)};
}
DODONA_INLINE i32 bit_xor(i32 a, i32 b) {
  return {_mm512_xor_si512(a.v, b.v)};
}
template <int k>
DODONA_INLINE i32 shl(i32 a) {
  return {_mm512_slli_epi32(a.v, k)};
}
template <int k>
DODONA_INLINE i32 shr(i32 a) {
  return {_mm512_srli_epi32(a.v, k)};
}
template <int k>
DODONA_INLINE i32 sra(i32 a) {
  return {_mm512_srai_epi32(a.v, k)};
}
DODONA_INLINE i32 add_8(i32 a, i32 b) {
  return {_mm512_add_epi8(a.v, b.v)};
}
DODONA_INLINE i32 mul_16(i32 a, i32 b) {
  return {_mm512_mullo_epi16(a.v, b.v)};
}
DODONA_INLINE i32 max_16(i32 a, i32 b) {
  return {_mm512_max_epi16(a.v, b.v)};
}
template <int k>
DODONA_INLINE i32 sra_16(i32 a) {
  return {_mm512_srai_epi16(a.v, k)};
}
DODONA_INLINE mask lt(i32 a, i32 b) {
  return {_mm512_cmplt_epi32_mask(a.v, b.v)};
}
DODONA_INLINE mask eq(i32 a, i32 b) {
  return {_mm512_cmpeq_epi32_mask(a.v, b.v)};
}
DODONA_INLINE i32 select(mask m, i32 a, i32 b) {
  return {_mm512_mask_blend_epi32(m.v, b.v, a.v)};
}

DODONA_INLINE i32 as_i32(f32 a) {
  return {_mm512_castps_si512(a.v)};
}
DODONA_INLINE f32 as_f32(i32 a) {
  return {_mm512_castsi512_ps(a.v)};
}
DODONA_INLINE f32 to_f32(i32 a) {
  return {_mm512_cvtepi32_ps(a.v)};
}
DODONA_INLINE i32 to_i32(f32 a) {
  return {_mm512_cvtps_epi32(a.v)};
}
DODONA_INLINE i32 to_i32_trunc(f32 a) {
  return {_mm512_cvttps_epi32(a.v)};
}

DODONA_INLINE mask bit_and(mask a, mask b) {
  return {static_cast<__mmask16>(a.v & b.v)};
}
DODONA_INLINE mask bit_or(mask a, mask b) {
  return {static_cast<__mmask16>(a.v | b.v)};
}
DODONA_INLINE mask bit_xor(mask a, mask b) {
  return {static_cast<__mmask16>(a.v ^ b.v)};
}
DODONA_INLINE mask bit_not(mask a) {
  return {static_cast<__mmask16>(~a.v)};
}

/// p * 2^n, rounded once.
DODONA_INLINE f32 scale_by_power(f32 p, f32 n) {
  return {_mm512_scalef_ps(p.v, n.v)};
}

// Reductions: lane i with lane i + 8, then + 4, + 2, + 1.
DODONA_INLINE __m256 low_half(f32 a) {
  return _mm512_castps512_ps256(a.v);
}
DODONA_INLINE __m256 high_half(f32 a) {
  return _mm512_extractf32x8_ps(a.v, 1);
}
DODONA_INLINE float reduce_add(f32 a) {
  const __m256 x8 = _mm256_add_ps(low_half(a), high_half(a));
  const __m128 x4 = _mm_add_ps(_mm256_castps256_ps128(x8), _mm256_extractf128_ps(x8, 1));
  const __m128 x2 = _mm_add_ps(x4, _mm_movehl_ps(x4, x4));
  return _mm_cvtss_f32(_mm_add_ss(x2, _mm_movehdup_ps(x2)));
}
DODONA_INLINE float reduce_min(f32 a) {
  const __m256 x8 = _mm256_min_ps(low_half(a), high_half(a));
  const __m128 x4 = _mm_min_ps(_mm256_castps256_ps128(x8), _mm256_extractf128_ps(x8, 1));
  const __m128 x2 = _mm_min_ps(x4, _mm_movehl_ps(x4, x4));
  return _mm_cvtss_f32(_mm_min_ss(x2, _mm_movehdup_ps(x2)));
}
DODONA_INLINE float reduce_max(f32 a) {
  const __m256 x8 = _mm256_max_ps(low_half(a), high_half(a));
  const __m128 x4 = _mm_max_ps(_mm256_castps256_ps128(x8), _mm256_extractf128_ps(x8, 1));
  const __m128 x2 = _mm_max_ps(x4, _mm_movehl_ps(x4, x4));
  return _mm_cvtss_f32(_mm_max_ss(x2, _mm_movehdup_ps(x2)));
}

DODONA_INLINE void deinterleave(f32& a, f32& b) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  const f32 e{_mm512_permutex2var_ps(a.v, even, b.v)};
  b = {_mm512_permutex2var_ps(a.v, odd, b.v)};
  a = e;
}
DODONA_INLINE void interleave(f32& even, f32& odd) {
  const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i second = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  const f32 a{_mm512_permutex2var_ps(even.v, first, odd.v)};
  odd = {_mm512_permutex2var_ps(even.v, second, odd.v)};
  even = a;
}

DODONA_INLINE void transpose(f32 (&r)[16]) {
  __m512 t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {  // pairs of rows
    t[2 * i] = _mm512_unpacklo_ps(r[2 * i].v, r[2 * i + 1].v);
    t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i].v, r[2 * i + 1].v);
  }
  __m512 u[16];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // fours of rows: u[4i + c] holds columns c, c+4, c+8, c+12 of rows 4i..4i+3
    const __m512d a = _mm512_castps_pd(t[4 * i]), b = _mm512_castps_pd(t[4 * i + 1]);
    const __m512d c = _mm512_castps_pd(t[4 * i + 2]), d = _mm512_castps_pd(t[4 * i + 3]);
    u[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    u[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    u[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    u[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {  // a 4x4 transposition of 128-bit blocks
    const __m512 a = _mm512_shuffle_f32x4(u[c], u[4 + c], 0x44), b = _mm512_shuffle_f32x4(u[c], u[4 + c], 0xEE);
    const __m512 d = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0x44), e = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0xEE);
    r[c] = {_mm512_shuffle_f32x4(a, d, 0x88)};
    r[4 + c] = {_mm512_shuffle_f32x4(a, d, 0xDD)};
    r[8 + c] = {_mm512_shuffle_f32x4(b, e, 0x88)};
    r[12 + c] = {_mm512_shuffle_f32x4(b, e, 0xDD)};
  }
}

/// reduce_add of each: the sums of two are taken in the two halves of one register, then those of four, of eight, of sixteen.
DODONA_INLINE f32 reduce_add(const f32 (&r)[16]) {
  __m512 x[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    x[i] = _mm512_add_ps(_mm512_mask_blend_ps(0xFF00, r[i].v, r[i + 8].v), _mm512_shuffle_f32x4(r[i].v, r[i + 8].v, 0x4E));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 crossed = _mm512_mask_blend_ps(0xF0F0, x[i + 4], x[i]);
    x[i] = _mm512_add_ps(_mm512_mask_blend_ps(0xF0F0, x[i], x[i + 4]), _mm512_shuffle_f32x4(crossed, crossed, 0xB1));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) x[i] = _mm512_add_ps(_mm512_mask_blend_ps(0xCCCC, x[i], x[i + 2]), _mm512_shuffle_ps(x[i], x[i + 2], 0x4E));
  const __m512 crossed = _mm512_mask_blend_ps(0xAAAA, x[1], x[0]);
  return {_mm512_add_ps(_mm512_mask_blend_ps(0xAAAA, x[0], x[1]), _mm512_permute_ps(crossed, 0xB1))};
}

/// Sixteen 8-bit codes.
struct codes8 {
  __m128i v;

  static DODONA_INLINE codes8 load(const void* p) { return {_mm_loadu_si128(static_cast<const __m128i*>(p))}; }
  static DODONA_INLINE codes8 load_first(const void* p, int n) { return {_mm_maskz_loadu_epi8(static_cast<__mmask16>(first_bits(n)), p)}; }
  DODONA_INLINE void store(void* p) const { _mm_storeu_si128(static_cast<__m128i*>(p), v); }
  DODONA_INLINE void store_first(void* p, int n) const { _mm_mask_storeu_epi8(p, static_cast<__mmask16>(first_bits(n)), v); }
};

/// Sixteen 16-bit codes.
struct codes16 {
  __m256i v;

  static DODONA_INLINE codes16 load(const void* p) { return {_mm256_loadu_si256(static_cast<const __m256i*>(p))}; }
  static DODONA_INLINE codes16 load_first(const void* p, int n) {
    return {_mm256_maskz_loadu_epi16(static_cast<__mmask16>(first_bits(n)), p)};
  }
  DODONA_INLINE void store(void* p) const { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
  DODONA_INLINE void store_first(void* p, int n) const { _mm256_mask_storeu_epi16(p, static_cast<__mmask16>(first_bits(n)), v); }
};

DODONA_INLINE i32 widen_unsigned(codes8 a) {
  return {_mm512_cvtepu8_epi32(a.v)};
}
DODONA_INLINE i32 widen_signed(codes8 a) {
  return {_mm512_cvtepi8_epi32(a.v)};
}
DODONA_INLINE i32 widen_unsigned(codes16 a) {
  return {_mm512_cvtepu16_epi32(a.v)};
}
DODONA_INLINE codes8 narrow_to_8(i32 a) {
  return {_mm512_cvtepi32_epi8(a.v)};
}
DODONA_INLINE codes16 narrow_to_16(i32 a) {
  return {_mm512_cvtepi32_epi16(a.v)};
}
struct codes16_pair {
  codes16 low, high;
};
/// The low halves of all lanes, then the high ones.
DODONA_INLINE i32 regroup_16(i32 a) {
  const __m512i even_then_odd = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26, 24, 22, 20, 18, 16,
                                                 14, 12, 10, 8, 6, 4, 2, 0);
  return {_mm512_permutexvar_epi16(even_then_odd, a.v)};
}
/// The first sixteen of thirty-two codes, and the others.
DODONA_INLINE codes16_pair sixteens(i32 a) {
  return {{_mm512_castsi512_si256(a.v)}, {_mm512_extracti64x4_epi64(a.v, 1)}};
}
/// The low and the high halves of all lanes.
DODONA_INLINE codes16_pair split_to_16(i32 a) {
  return sixteens(regroup_16(a));
}
/// Sixteen codes 0..15 in eight bytes, element 2j in the low nibble of byte j.
DODONA_INLINE std::uint64_t pack_nibbles(codes8 a) {
  const __m128i words = _mm_maddubs_epi16(a.v, _mm_set1_epi16(0x1001));
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_packus_epi16(words, words)));
}
DODONA_INLINE f32 half_to_f32(codes16 a) {
  return {_mm512_cvtph_ps(a.v)};
}
DODONA_INLINE codes16 f32_to_half(f32 a) {
  return {_mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
/// The half of the same sign, exponent field and mantissa, which is value / 256.
DODONA_INLINE codes16 e4m3_to_half_finite(codes8 a) {
  const __m256i bits = _mm256_slli_epi16(_mm256_cvtepi8_epi16(a.v), 7);
  return {_mm256_and_si256(bits, _mm256_set1_epi16(static_cast<short>(0xBFFF)))};
}
/// The same, and codes 0x7F and 0xFF become the NaN 0x7E00 with their sign.
DODONA_INLINE codes16 e4m3_to_half(codes8 a) {
  const __m256i bits = e4m3_to_half_finite(a).v;
  const __m128i ones = _mm_set1_epi8(0x7F);
  const __mmask16 nan = _mm_testn_epi8_mask(_mm_xor_si128(a.v, ones), ones);
  return {_mm256_mask_add_epi16(bits, nan, bits, _mm256_set1_epi16(0x7E00 - 0x3F80))};
}
DODONA_INLINE codes16 e5m2_to_half(codes8 a) {
  return {_mm256_slli_epi16(_mm256_cvtepu8_epi16(a.v), 8)};
}
DODONA_INLINE f32 e2m1_to_f32(std::uint64_t codes) {
  const __m512 table =
      _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
  const __m512i words =
      _mm512_mask_set1_epi32(_mm512_set1_epi32(static_cast<std::int32_t>(codes)), 0xFF00, static_cast<std::int32_t>(codes >> 32));
  const __m512i shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  return {_mm512_permutexvar_ps(_mm512_srlv_epi32(words, shifts), table)};  // the permutation looks at the low four bits only
}

DODONA_INLINE i32 dpbusd(i32 acc, i32 a, i32 b) {
#if DODONA_TIER_v4_vnni
  return {_mm512_dpbusd_epi32(acc.v, a.v, b.v)};
#else
  const __m512i even =
      _mm512_madd_epi16(_mm512_and_si512(a.v, _mm512_set1_epi32(0x00FF00FF)), _mm512_srai_epi16(_mm512_slli_epi16(b.v, 8), 8));
  const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(a.v, 8), _mm512_srai_epi16(b.v, 8));
  return {_mm512_add_epi32(acc.v, _mm512_add_epi32(even, odd))};
#endif
}
DODONA_INLINE i32 dpbusd_small(i32 acc, i32 a, i32 b) {
#if DODONA_TIER_v4_vnni
  return {_mm512_dpbusd_epi32(acc.v, a.v, b.v)};
#else
  return {_mm512_add_epi32(acc.v, _mm512_madd_epi16(_mm512_maddubs_epi16(a.v, b.v), _mm512_set1_epi16(1)))};
#endif
}
/// Sums of 4 x 4 bytes a lane; see dot_i8.h.
DODONA_INLINE i32 dot16_small(i32 acc, const i32 (&a)[4], const i32 (&b)[4]) {
#if DODONA_TIER_v4_vnni
  return dpbusd(dpbusd(dpbusd(dpbusd(acc, a[0], b[0]), a[1], b[1]), a[2], b[2]), a[3], b[3]);
#else
  const __m512i low = _mm512_add_epi16(_mm512_maddubs_epi16(a[0].v, b[0].v), _mm512_maddubs_epi16(a[1].v, b[1].v));
  const __m512i high = _mm512_add_epi16(_mm512_maddubs_epi16(a[2].v, b[2].v), _mm512_maddubs_epi16(a[3].v, b[3].v));
  return {_mm512_add_epi32(acc.v, _mm512_madd_epi16(_mm512_add_epi16(low, high), _mm512_set1_epi16(1)))};
#endif
}
/// Lane `index` mod 16 of the table.
DODONA_INLINE f32 lookup_16(f32 table, i32 index) {
  return {_mm512_permutexvar_ps(index.v, table.v)};
}
/// Every byte of `indices`, 0..15, replaced by that byte of the table, which is repeated every 16 bytes.
DODONA_INLINE i32 lookup_bytes(i32 table, i32 indices) {
  return {_mm512_shuffle_epi8(table.v, indices.v)};
}

}  // namespace dodona::DODONA_TIER::lanes
