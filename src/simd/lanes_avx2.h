// Sixteen lanes in two AVX2 registers. See f32x16.h for what each operation promises.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <xsimd/xsimd.hpp>

#include "simd/inline.h"
#include "simd/lanes_twin.h"

namespace dodona::DODONA_TIER::lanes {

using f32_batch = xsimd::batch<float, xsimd::fma3<xsimd::avx2>>;
using i32_batch = xsimd::batch<std::int32_t, xsimd::fma3<xsimd::avx2>>;

/// All ones in lanes below n.
DODONA_INLINE __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

struct f32x8 {
  static constexpr int size = 8;
  f32_batch v;

  static DODONA_INLINE f32x8 load(const float* p) { return {f32_batch::load_unaligned(p)}; }
  static DODONA_INLINE f32x8 load_first(const float* p, int n) { return {_mm256_maskload_ps(p, first_lanes(n))}; }
  static DODONA_INLINE f32x8 splat(float x) { return {f32_batch(x)}; }
  static DODONA_INLINE f32x8 zero() { return {_mm256_setzero_ps()}; }
  DODONA_INLINE void store(float* p) const { v.store_unaligned(p); }
  DODONA_INLINE void store_first(float* p, int n) const { _mm256_maskstore_ps(p, first_lanes(n), v); }
};

struct i32x8 {
  static constexpr int size = 8;
  i32_batch v;

  static DODONA_INLINE i32x8 load(const std::int32_t* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
  static DODONA_INLINE i32x8 load_first(const std::int32_t* p, int n) { return {_mm256_maskload_epi32(p, first_lanes(n))}; }
  static DODONA_INLINE i32x8 splat(std::int32_t x) { return {_mm256_set1_epi32(x)}; }
  static DODONA_INLINE i32x8 zero() { return {_mm256_setzero_si256()}; }
  DODONA_INLINE void store(std::int32_t* p) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
  DODONA_INLINE void store_first(std::int32_t* p, int n) const { _mm256_maskstore_epi32(p, first_lanes(n), v); }
};

/// All ones in the lanes that are set.
struct mask8 {
  static constexpr int size = 8;
  i32_batch v;

  static DODONA_INLINE mask8 from_bits(std::uint32_t bits) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return {_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<std::int32_t>(bits)), bit), bit)};
  }
  DODONA_INLINE std::uint32_t to_bits() const { return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(v))); }
};

using f32 = twin<f32x8>;
using i32 = twin<i32x8>;
using mask = twin<mask8>;

DODONA_INLINE f32x8 add(f32x8 a, f32x8 b) {
  return {a.v + b.v};
}
DODONA_INLINE f32x8 sub(f32x8 a, f32x8 b) {
  return {a.v - b.v};
}
DODONA_INLINE f32x8 mul(f32x8 a, f32x8 b) {
  return {a.v * b.v};
}
DODONA_INLINE f32x8 div(f32x8 a, f32x8 b) {
  return {a.v / b.v};
}
DODONA_INLINE f32x8 fma(f32x8 a, f32x8 b, f32x8 c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
DODONA_INLINE f32x8 fnma(f32x8 a, f32x8 b, f32x8 c) {
  return {_mm256_fnmadd_ps(a.v, b.v, c.v)};
}
DODONA_INLINE f32x8 fms(f32x8 a, f32x8 b, f32x8 c) {
  return {_mm256_fmsub_ps(a.v, b.v, c.v)};
}
DODONA_INLINE f32x8 min(f32x8 a, f32x8 b) {
  return {_mm256_min_ps(a.v, b.v)};
}
DODONA_INLINE f32x8 max(f32x8 a, f32x8 b) {
  return {_mm256_max_ps(a.v, b.v)};
}
DODONA_INLINE f32x8 sqrt(f32x8 a) {
  return {xsimd::sqrt(a.v)};
}
DODONA_INLINE f32x8 floor(f32x8 a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
}
DODONA_INLINE f32x8 round_even(f32x8 a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

DODONA_INLINE mask8 lt(f32x8 a, f32x8 b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))};
}
DODONA_INLINE mask8 le(f32x8 a, f32x8 b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a.v, b.v, _CMP_LE_OQ))};
}
DODONA_INLINE mask8 eq(f32x8 a, f32x8 b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ))};
}
DODONA_INLINE f32x8 select(mask8 m, f32x8 a, f32x8 b) {
  return {_mm256_blendv_ps(b.v, a.v, _mm256_castsi256_ps(m.v))};
}

DODONA_INLINE i32x8 add(i32x8 a, i32x8 b) {
  return {_mm256_add_epi32(a.v, b.v)};
}
DODONA_INLINE i32x8 sub(i32x8 a, i32x8 b) {
  return {_mm256_sub_epi32(a.v, b.v)};
}
DODONA_INLINE i32x8 mul(i32x8 a, i32x8 b) {
  return {_mm256_mullo_epi32(a.v, b.v)};
}
DODONA_INLINE i32x8 min(i32x8 a, i32x8 b) {
  return {_mm256_min_epi32(a.v, b.v)};
}
DODONA_INLINE i32x8 max(i32x8 a, i32x8 b) {
  return {_mm256_max_epi32(a.v, b.v)};
}
DODONA_INLINE i32x8 bit_and(i32x8 a, i32x8 b) {
  return {_mm256_and_si256(a.v, b.v)};
}
DODONA_INLINE i32x8 bit_or(i32x8 a, i32x8 b) {
  return {_mm256_or_si256(a.v, b.v)};
}
DODONA_INLINE i32x8 bit_xor(i32x8 a, i32x8 b) {
  return {_mm256_xor_si256(a.v, b.v)};
}
template <int k>
DODONA_INLINE i32x8 shl(i32x8 a) {
  return {_mm256_slli_epi32(a.v, k)};
}
template <int k>
DODONA_INLINE i32x8 shr(i32x8 a) {
  return {_mm256_srli_epi32(a.v, k)};
}
template <int k>
DODONA_INLINE i32x8 sra(i32x8 a) {
  return {_mm256_srai_epi32(a.v, k)};
}
DODONA_INLINE i32x8 add_8(i32x8 a, i32x8 b) {
  return {_mm256_add_epi8(a.v, b.v)};
}
DODONA_INLINE i32x8 mul_16(i32x8 a, i32x8 b) {
  return {_mm256_mullo_epi16(a.v, b.v)};
}
DODONA_INLINE i32x8 max_16(i32x8 a, i32x8 b) {
  return {_mm256_max_epi16(a.v, b.v)};
}
template <int k>
DODONA_INLINE i32x8 sra_16(i32x8 a) {
  return {_mm256_srai_epi16(a.v, k)};
}
DODONA_INLINE mask8 lt(i32x8 a, i32x8 b) {
  return {_mm256_cmpgt_epi32(b.v, a.v)};
}
DODONA_INLINE mask8 eq(i32x8 a, i32x8 b) {
  return {_mm256_cmpeq_epi32(a.v, b.v)};
}
DODONA_INLINE i32x8 select(mask8 m, i32x8 a, i32x8 b) {
  return {_mm256_blendv_epi8(b.v, a.v, m.v)};
}

DODONA_INLINE i32x8 as_i32(f32x8 a) {
  return {_mm256_castps_si256(a.v)};
}
DODONA_INLINE f32x8 as_f32(i32x8 a) {
  return {_mm256_castsi256_ps(a.v)};
}
DODONA_INLINE f32x8 to_f32(i32x8 a) {
  return {_mm256_cvtepi32_ps(a.v)};
}
DODONA_INLINE i32x8 to_i32(f32x8 a) {
  return {_mm256_cvtps_epi32(a.v)};
}
DODONA_INLINE i32x8 to_i32_trunc(f32x8 a) {
  return {_mm256_cvttps_epi32(a.v)};
}

DODONA_INLINE mask8 bit_and(mask8 a, mask8 b) {
  return {_mm256_and_si256(a.v, b.v)};
}
DODONA_INLINE mask8 bit_or(mask8 a, mask8 b) {
  return {_mm256_or_si256(a.v, b.v)};
}
DODONA_INLINE mask8 bit_xor(mask8 a, mask8 b) {
  return {_mm256_xor_si256(a.v, b.v)};
}
DODONA_INLINE mask8 bit_not(mask8 a) {
  return {_mm256_xor_si256(a.v, _mm256_set1_epi32(-1))};
}

// Reductions of eight lanes: lane i with lane i + 4, then + 2, + 1.
DODONA_INLINE float reduce_add(f32x8 a) {
  const __m128 x4 = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 x2 = _mm_add_ps(x4, _mm_movehl_ps(x4, x4));
  return _mm_cvtss_f32(_mm_add_ss(x2, _mm_movehdup_ps(x2)));
}
DODONA_INLINE float reduce_min(f32x8 a) {
  const __m128 x4 = _mm_min_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 x2 = _mm_min_ps(x4, _mm_movehl_ps(x4, x4));
  return _mm_cvtss_f32(_mm_min_ss(x2, _mm_movehdup_ps(x2)));
}
DODONA_INLINE float reduce_max(f32x8 a) {
  const __m128 x4 = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 x2 = _mm_max_ps(x4, _mm_movehl_ps(x4, x4));
  return _mm_cvtss_f32(_mm_max_ss(x2, _mm_movehdup_ps(x2)));
}

DODONA_INLINE __m256 swap_middle_pairs(__m256 x) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xD8));
}
DODONA_INLINE void deinterleave(f32x8& a, f32x8& b) {
  const __m256 even = _mm256_shuffle_ps(a.v, b.v, 0x88), odd = _mm256_shuffle_ps(a.v, b.v, 0xDD);
  a = {swap_middle_pairs(even)};
  b = {swap_middle_pairs(odd)};
}
DODONA_INLINE void interleave(f32x8& even, f32x8& odd) {
  const __m256 low = _mm256_unpacklo_ps(even.v, odd.v), high = _mm256_unpackhi_ps(even.v, odd.v);
  even = {_mm256_permute2f128_ps(low, high, 0x20)};
  odd = {_mm256_permute2f128_ps(low, high, 0x31)};
}

/// Transposes the 8x8 block that starts at r[0], one half of each of eight rows.
DODONA_INLINE void transpose_block(__m256 (&r)[8]) {
  __m256 t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  __m256 u[8];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xEE);
    u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    r[c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x20);
    r[4 + c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x31);
  }
}
DODONA_INLINE void transpose(f32 (&r)[16]) {
  __m256 a[8], b[8], c[8], d[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    a[i] = r[i].lo.v;
    b[i] = r[i].hi.v;
    c[i] = r[8 + i].lo.v;
    d[i] = r[8 + i].hi.v;
  }
  transpose_block(a);
  transpose_block(b);
  transpose_block(c);
  transpose_block(d);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    r[i] = {{a[i]}, {c[i]}};
    r[8 + i] = {{b[i]}, {d[i]}};
  }
}

/// Sixteen 8-bit codes.
struct codes8 {
  __m128i v;

  static DODONA_INLINE codes8 load(const void* p) { return {_mm_loadu_si128(static_cast<const __m128i*>(p))}; }
  static DODONA_INLINE codes8 load_first(const void* p, int n) {
    alignas(16) std::uint8_t buffer[16] = {};
    __builtin_memcpy(buffer, p, static_cast<std::size_t>(n));
    return load(buffer);
  }
  DODONA_INLINE void store(void* p) const { _mm_storeu_si128(static_cast<__m128i*>(p), v); }
  DODONA_INLINE void store_first(void* p, int n) const {
    alignas(16) std::uint8_t buffer[16];
    store(buffer);
    __builtin_memcpy(p, buffer, static_cast<std::size_t>(n));
  }
};

/// Sixteen 16-bit codes.
struct codes16 {
  __m256i v;

  static DODONA_INLINE codes16 load(const void* p) { return {_mm256_loadu_si256(static_cast<const __m256i*>(p))}; }
  static DODONA_INLINE codes16 load_first(const void* p, int n) {
    alignas(32) std::uint16_t buffer[16] = {};
    __builtin_memcpy(buffer, p, 2 * static_cast<std::size_t>(n));
    return load(buffer);
  }
  DODONA_INLINE void store(void* p) const { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
  DODONA_INLINE void store_first(void* p, int n) const {
    alignas(32) std::uint16_t buffer[16];
    store(buffer);
    __builtin_memcpy(p, buffer, 2 * static_cast<std::size_t>(n));
  }
};

DODONA_INLINE i32 widen_unsigned(codes8 a) {
  return {{_mm256_cvtepu8_epi32(a.v)}, {_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(a.v, a.v))}};
}
DODONA_INLINE i32 widen_signed(codes8 a) {
  return {{_mm256_cvtepi8_epi32(a.v)}, {_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(a.v, a.v))}};
}
DODONA_INLINE i32 widen_unsigned(codes16 a) {
  return {{_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a.v))}, {_mm256_cvtepu16_epi32(_mm256_extracti128_si256(a.v, 1))}};
}
/// Lanes hold 0..65535.
DODONA_INLINE codes16 narrow_to_16(i32 a) {
  return {_mm256_permute4x64_epi64(_mm256_packus_epi32(a.lo.v, a.hi.v), 0xD8)};
}
/// Lanes hold 0..255.
DODONA_INLINE codes8 narrow_to_8(i32 a) {
  const __m256i words = narrow_to_16(a).v;
  return {_mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1))};
}
struct codes16_pair {
  codes16 low, high;
};
/// The low and the high halves of all lanes.
DODONA_INLINE codes16_pair split_to_16(i32 a) {
  const __m256i low = _mm256_set1_epi32(0xFFFF);
  return {narrow_to_16(i32{{_mm256_and_si256(a.lo.v, low)}, {_mm256_and_si256(a.hi.v, low)}}),
          narrow_to_16(i32{{_mm256_srli_epi32(a.lo.v, 16)}, {_mm256_srli_epi32(a.hi.v, 16)}})};
}
/// The low halves of all lanes, then the high ones.
DODONA_INLINE i32 regroup_16(i32 a) {
  const codes16_pair split = split_to_16(a);
  return {{split.low.v}, {split.high.v}};
}
/// The first sixteen of thirty-two codes, and the others.
DODONA_INLINE codes16_pair sixteens(i32 a) {
  return {{a.lo.v}, {a.hi.v}};
}
/// Lane `index` mod 16 of the table.
DODONA_INLINE f32x8 lookup_16(f32 table, i32x8 index) {
  const __m256 low = _mm256_permutevar8x32_ps(table.lo.v, index.v), high = _mm256_permutevar8x32_ps(table.hi.v, index.v);
  return {_mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index.v, 28)))};
}
DODONA_INLINE f32 lookup_16(f32 table, i32 index) {
  return {lookup_16(table, index.lo), lookup_16(table, index.hi)};
}
/// Sixteen codes 0..15 in eight bytes, element 2j in the low nibble of byte j.
DODONA_INLINE std::uint64_t pack_nibbles(codes8 a) {
  const __m128i words = _mm_maddubs_epi16(a.v, _mm_set1_epi16(0x1001));
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_packus_epi16(words, words)));
}
DODONA_INLINE f32 half_to_f32(codes16 a) {
  return {{_mm256_cvtph_ps(_mm256_castsi256_si128(a.v))}, {_mm256_cvtph_ps(_mm256_extracti128_si256(a.v, 1))}};
}
DODONA_INLINE codes16 f32_to_half(f32 a) {
  return {_mm256_set_m128i(_mm256_cvtps_ph(a.hi.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                           _mm256_cvtps_ph(a.lo.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}
/// The half of the same sign, exponent field and mantissa, which is value / 256.
DODONA_INLINE codes16 e4m3_to_half_finite(codes8 a) {
  const __m256i bits = _mm256_slli_epi16(_mm256_cvtepi8_epi16(a.v), 7);
  return {_mm256_and_si256(bits, _mm256_set1_epi16(static_cast<short>(0xBFFF)))};
}
/// The same, and codes 0x7F and 0xFF become the NaN 0x7E00 with their sign.
DODONA_INLINE codes16 e4m3_to_half(codes8 a) {
  const __m256i bits = e4m3_to_half_finite(a).v;
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x3F80));
  const __m256i nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x3F80));
  return {_mm256_add_epi16(bits, _mm256_and_si256(nan, _mm256_set1_epi16(0x7E00 - 0x3F80)))};
}
DODONA_INLINE codes16 e5m2_to_half(codes8 a) {
  return {_mm256_slli_epi16(_mm256_cvtepu8_epi16(a.v), 8)};
}
DODONA_INLINE f32x8 e2m1_to_f32(std::uint32_t codes) {
  const __m256 table = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  const __m256i nibbles =
      _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<std::int32_t>(codes)), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
  const __m256 magnitude = _mm256_permutevar8x32_ps(table, nibbles);  // looks at the low three bits only
  const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(nibbles, 28), _mm256_set1_epi32(static_cast<std::int32_t>(0x80000000)));
  return {_mm256_or_ps(magnitude, _mm256_castsi256_ps(sign))};
}
DODONA_INLINE f32 e2m1_to_f32(std::uint64_t codes) {
  return {e2m1_to_f32(static_cast<std::uint32_t>(codes)), e2m1_to_f32(static_cast<std::uint32_t>(codes >> 32))};
}

DODONA_INLINE i32x8 dpbusd(i32x8 acc, i32x8 a, i32x8 b) {
  const __m256i even =
      _mm256_madd_epi16(_mm256_and_si256(a.v, _mm256_set1_epi32(0x00FF00FF)), _mm256_srai_epi16(_mm256_slli_epi16(b.v, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a.v, 8), _mm256_srai_epi16(b.v, 8));
  return {_mm256_add_epi32(acc.v, _mm256_add_epi32(even, odd))};
}
DODONA_INLINE i32x8 dpbusd_small(i32x8 acc, i32x8 a, i32x8 b) {
  return {_mm256_add_epi32(acc.v, _mm256_madd_epi16(_mm256_maddubs_epi16(a.v, b.v), _mm256_set1_epi16(1)))};
}
DODONA_INLINE i32x8 dot16_small(i32x8 acc, const i32x8 (&a)[4], const i32x8 (&b)[4]) {
  const __m256i low = _mm256_add_epi16(_mm256_maddubs_epi16(a[0].v, b[0].v), _mm256_maddubs_epi16(a[1].v, b[1].v));
  const __m256i high = _mm256_add_epi16(_mm256_maddubs_epi16(a[2].v, b[2].v), _mm256_maddubs_epi16(a[3].v, b[3].v));
  return {_mm256_add_epi32(acc.v, _mm256_madd_epi16(_mm256_add_epi16(low, high), _mm256_set1_epi16(1)))};
}
DODONA_INLINE i32x8 lookup_bytes(i32x8 table, i32x8 indices) {
  return {_mm256_shuffle_epi8(table.v, indices.v)};
}

}  // namespace dodona::DODONA_TIER::lanes
