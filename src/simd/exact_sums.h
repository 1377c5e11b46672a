// What exact sums of aligned products take beyond sixteen lanes: exponents as pairs of 16-bit integers, two in each lane of an i32x16,
// integers that are cut to floats, and sums beyond 32 bits. The same on every tier. Included by *.simd.cpp only.
#pragma once

#include <cstdint>

#include "simd/f32x16.h"
#include "simd/registers.h"

namespace dodona::DODONA_TIER {

#if DODONA_TIER_generic
// Four lanes in registers that every x86-64 and AArch64 CPU has: left to themselves, compilers do not vectorize these.
using floats = float __attribute__((vector_size(16)));
using ints = std::int32_t __attribute__((vector_size(16)));
using shorts = std::int16_t __attribute__((vector_size(16)));
template <class Vector>
DODONA_INLINE Vector quarter(const void* lanes) {
  Vector v;
  __builtin_memcpy(&v, lanes, sizeof v);
  return v;
}
#endif

/// The upper 16 bits of two floats, the first in the low half.
DODONA_INLINE i32x16 upper_halves(f32x16 first, f32x16 second) {
  return shr<16>(as_i32(first)) | (as_i32(second) & i32x16::splat(-0x10000));
}

/// Of 16-bit floats, two a lane, the exponent fields plus `bias`, denormals counting as field `least`; `zero` for zeros, `special` from
/// magnitude `infinity` on.
template <int mantissa_bits>
DODONA_INLINE i32x16 exponent_fields(i32x16 halves, std::int16_t least, std::int16_t bias, std::int16_t infinity, std::int16_t zero,
                                     std::int16_t special) {
  const std::int16_t finite_most = static_cast<std::int16_t>(infinity - 1);
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
  const __m512i magnitude = _mm512_and_si512(halves.v.v, _mm512_set1_epi16(0x7FFF));
  const __m512i field = _mm512_max_epi16(_mm512_srli_epi16(magnitude, mantissa_bits), _mm512_set1_epi16(least));
  const __m512i finite =
      _mm512_mask_mov_epi16(_mm512_add_epi16(field, _mm512_set1_epi16(bias)),
                            _mm512_cmpgt_epi16_mask(magnitude, _mm512_set1_epi16(finite_most)), _mm512_set1_epi16(special));
  return {{_mm512_mask_mov_epi16(finite, _mm512_testn_epi16_mask(magnitude, magnitude), _mm512_set1_epi16(zero))}};
#elif DODONA_TIER_v3
  const auto half = [=](__m256i pairs) {
    const __m256i magnitude = _mm256_and_si256(pairs, _mm256_set1_epi16(0x7FFF));
    const __m256i field = _mm256_max_epi16(_mm256_srli_epi16(magnitude, mantissa_bits), _mm256_set1_epi16(least));
    const __m256i finite = _mm256_blendv_epi8(_mm256_add_epi16(field, _mm256_set1_epi16(bias)), _mm256_set1_epi16(special),
                                              _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(finite_most)));
    return _mm256_blendv_epi8(finite, _mm256_set1_epi16(zero), _mm256_cmpeq_epi16(magnitude, _mm256_setzero_si256()));
  };
  return {{{half(halves.v.lo.v)}, {half(halves.v.hi.v)}}};
#else
  const auto field_of = [=](i32x16 magnitude) {
    const i32x16 field = max(shr<mantissa_bits>(magnitude), i32x16::splat(least)) + i32x16::splat(bias);
    const i32x16 finite = select(magnitude > i32x16::splat(finite_most), i32x16::splat(special), field);
    return select(magnitude == i32x16::zero(), i32x16::splat(zero), finite);
  };
  const i32x16 low = i32x16::splat(0x7FFF);
  return (field_of(halves & low) & i32x16::splat(0xFFFF)) | shl<16>(field_of(shr<16>(halves) & low));
#endif
}

/// largest = max(largest, a + b) for both numbers of every lane; sums are to fit.
DODONA_INLINE void raise_pairs(i32x16& largest, i32x16 a, i32x16 b) {
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
  largest.v.v = _mm512_max_epi16(largest.v.v, _mm512_add_epi16(a.v.v, b.v.v));
#elif DODONA_TIER_v3
  largest.v.lo.v = _mm256_max_epi16(largest.v.lo.v, _mm256_add_epi16(a.v.lo.v, b.v.lo.v));
  largest.v.hi.v = _mm256_max_epi16(largest.v.hi.v, _mm256_add_epi16(a.v.hi.v, b.v.hi.v));
#elif DODONA_TIER_neon
  // The low halves add nothing to the high ones that a sum of high halves has not room for.
  const i32x16 low = max(shl<16>(largest), shl<16>(a) + shl<16>(b));
  const i32x16 high = i32x16::splat(-0x10000), sums = (a & high) + (b & high);
  largest = shr<16>(low) | (max(largest & high, sums) & high);
#else
  for (int i = 0; i < 16; i += 4) {
    auto so_far = quarter<shorts>(largest.v.x + i);
    const shorts sum = quarter<shorts>(a.v.x + i) + quarter<shorts>(b.v.x + i);
    so_far = sum > so_far ? sum : so_far;
    __builtin_memcpy(largest.v.x + i, &so_far, sizeof so_far);
  }
#endif
}

/// The larger of the two that each lane holds.
DODONA_INLINE i32x16 larger_of_pair(i32x16 a) {
  return max(sra<16>(a), sra<16>(shl<16>(a)));
}

DODONA_INLINE i32x16 splat_pair(const std::int16_t* p) {
  std::int32_t pair;
  __builtin_memcpy(&pair, p, sizeof pair);
  return i32x16::splat(pair);
}
DODONA_INLINE i32x16 load_pairs(const void* p) {
  return i32x16::load(static_cast<const std::int32_t*>(p));
}
DODONA_INLINE void store_pairs(i32x16 pairs, void* p) {
  pairs.store(static_cast<std::int32_t*>(p));
}

/// sum += a * b * scale, the product cut toward zero to an integer, which is to be below 2^31.
DODONA_INLINE void add_cut(i32x16& sum, f32x16 a, f32x16 b, f32x16 scale) {
#if DODONA_TIER_generic
  for (int i = 0; i < 16; i += 4) {
    const floats product = quarter<floats>(a.v.x + i) * quarter<floats>(b.v.x + i) * quarter<floats>(scale.v.x + i);
    const ints total = quarter<ints>(sum.v.x + i) + __builtin_convertvector(product, ints);
    __builtin_memcpy(sum.v.x + i, &total, sizeof total);
  }
#else
  sum = sum + to_i32_trunc(a * b * scale);
#endif
}

/// Values, cut toward zero where they have more than 24 bits.
DODONA_INLINE f32x16 to_f32_cut(i32x16 a) {
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
  return {{_mm512_cvt_roundepi32_ps(a.v.v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)}};
#else
  // Where rounding to nearest made the magnitude larger, the float before it. (2^31, for which there is no integer, comes back as the
  // smallest one: differences wrap.)
  const i32x16 sign = sra<31>(a), magnitude = (a ^ sign) - sign;
  const f32x16 nearest = abs(to_f32(magnitude));
  const i32x16 above = sra<31>(magnitude - to_i32_trunc(nearest));
  return as_f32((as_i32(nearest) + above) | (a & i32x16::splat(static_cast<std::int32_t>(0x80000000))));
#endif
}

/// Sixteen sums of integers below 2^52: where 64-bit integers do not convert, they are doubles.
struct whole_sums {
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
  using part = __m512i;
#elif DODONA_TIER_v3
  using part = __m256d;
#elif DODONA_TIER_neon
  using part = float64x2_t;
#else
  using part = double __attribute__((vector_size(16)));
#endif
  static constexpr int parts = 16 * sizeof(double) / sizeof(part);
  part v[parts];

  static DODONA_INLINE whole_sums zero() {
    whole_sums r;
    DODONA_UNROLL(8)
    for (int i = 0; i < parts; ++i) r.v[i] = part{};
    return r;
  }
};

/// sum += a, cut toward zero to an integer.
DODONA_INLINE void add_cut(whole_sums& sum, f32x16 a) {
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
  sum.v[0] = _mm512_add_epi64(sum.v[0], _mm512_cvttps_epi64(_mm512_castps512_ps256(a.v.v)));
  sum.v[1] = _mm512_add_epi64(sum.v[1], _mm512_cvttps_epi64(_mm512_extractf32x8_ps(a.v.v, 1)));
#elif DODONA_TIER_v3
  const __m256 halves[2] = {a.v.lo.v, a.v.hi.v};
  DODONA_UNROLL(2)
  for (int i = 0; i < 2; ++i) {
    const __m256 cut = _mm256_round_ps(halves[i], _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    sum.v[2 * i] = _mm256_add_pd(sum.v[2 * i], _mm256_cvtps_pd(_mm256_castps256_ps128(cut)));
    sum.v[2 * i + 1] = _mm256_add_pd(sum.v[2 * i + 1], _mm256_cvtps_pd(_mm256_extractf128_ps(cut, 1)));
  }
#elif DODONA_TIER_neon
  const float32x4_t quarters[4] = {a.v.lo.lo.v, a.v.lo.hi.v, a.v.hi.lo.v, a.v.hi.hi.v};
  DODONA_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    const float32x4_t cut = vrndq_f32(quarters[i]);
    sum.v[2 * i] = vaddq_f64(sum.v[2 * i], vcvt_f64_f32(vget_low_f32(cut)));
    sum.v[2 * i + 1] = vaddq_f64(sum.v[2 * i + 1], vcvt_high_f64_f32(cut));
  }
#else
  using two = float __attribute__((vector_size(8)));
  for (int i = 0; i < 16; i += 4) {
    const floats x = quarter<floats>(a.v.x + i);
    const floats whole = __builtin_convertvector(__builtin_convertvector(x, ints), floats);  // of magnitudes below 2^31
    const ints fraction = (x < 0x1p23f) & (x > -0x1p23f);
    const ints cut = ((ints)whole & fraction) | ((ints)x & ~fraction);
    two halves[2];
    __builtin_memcpy(halves, &cut, sizeof halves);
    for (int j = 0; j < 2; ++j) sum.v[i / 2 + j] += __builtin_convertvector(halves[j], whole_sums::part);
  }
#endif
}

/// Values, cut toward zero to 24 bits.
DODONA_INLINE f32x16 to_f32_cut(whole_sums a) {
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
  const __m256 low = _mm512_cvt_roundepi64_ps(a.v[0], _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  const __m256 high = _mm512_cvt_roundepi64_ps(a.v[1], _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  return {{_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1)}};
#elif DODONA_TIER_v3
  const __m256d bits = _mm256_castsi256_pd(_mm256_set1_epi64x(-0x20000000));
  const auto cut = [bits](__m256d x) { return _mm256_cvtpd_ps(_mm256_and_pd(x, bits)); };
  const auto half = [cut](__m256d x, __m256d y) { return _mm256_insertf128_ps(_mm256_castps128_ps256(cut(x)), cut(y), 1); };
  return {{{half(a.v[0], a.v[1])}, {half(a.v[2], a.v[3])}}};
#elif DODONA_TIER_neon
  const auto cut = [](float64x2_t x) {
    return vcvt_f32_f64(vreinterpretq_f64_s64(vandq_s64(vreinterpretq_s64_f64(x), vdupq_n_s64(-0x20000000))));
  };
  const auto four = [cut](float64x2_t x, float64x2_t y) { return lanes::f32x4{vcombine_f32(cut(x), cut(y))}; };
  return {{{four(a.v[0], a.v[1]), four(a.v[2], a.v[3])}, {four(a.v[4], a.v[5]), four(a.v[6], a.v[7])}}};
#else
  using longs = std::int64_t __attribute__((vector_size(16)));
  using two = float __attribute__((vector_size(8)));
  f32x16 r;
  for (int i = 0; i < whole_sums::parts; ++i) {
    const two cut = __builtin_convertvector((whole_sums::part)((longs)a.v[i] & -0x20000000), two);
    __builtin_memcpy(r.v.x + 2 * i, &cut, sizeof cut);
  }
  return r;
#endif
}

}  // namespace dodona::DODONA_TIER
