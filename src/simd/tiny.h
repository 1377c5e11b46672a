// Products and sums of f32 that meet denormals, without the hundred and more cycles that some CPUs take for each instruction that does: the
// same bits, made of normal numbers. Included by *.simd.cpp only.
//
// A number x is held as 2^149 x, in which every denormal is an integer below 2^23. The CPU's own result is right from 2^23 on, where fp32
// numbers have their 24 bits; below, a sum with +-2^23 rounds to the integers that fp32 has there.
#pragma once

#include "simd/f32x16.h"

namespace dodona::DODONA_TIER {

/// Whether some lane is other than zero and so small that a product with it may be denormal.
DODONA_INLINE bool any_tiny(f32x16 x) {
  // Zero wraps to the largest integer, the smallest magnitude to the smallest one.
  const i32x16 order = (as_i32(x) & i32x16::splat(0x7FFFFFFF)) + i32x16::splat(0x7FFFFFFF);
  constexpr std::int32_t two_to_minus_100 = 27 << 23;
  return any(order < i32x16::splat(two_to_minus_100 - 0x7FFFFFFF - 2));
}

/// Whether all lanes may be held times 2^149.
DODONA_INLINE bool all_small(f32x16 x) {
  constexpr std::int32_t two_to_minus_40 = 87 << 23;
  return all((as_i32(x) & i32x16::splat(0x7FFFFFFF)) < i32x16::splat(two_to_minus_40));
}

/// Whether all lanes keep the product with such a number finite.
DODONA_INLINE bool all_factors(f32x16 y) {
  return all(abs(y) < f32x16::splat(0x1p16f));
}

/// 2^149 x for the lanes of an f32x16 with all_small.
struct Enlarged {
  f32x16 v;

  static DODONA_INLINE Enlarged of(f32x16 x) {
    const i32x16 u = as_i32(x), magnitude = u & i32x16::splat(0x7FFFFFFF);
    const f32x16 integer = bit_or(to_f32(magnitude), sign_of(x));
    return {select(magnitude < i32x16::splat(0x800000), integer, as_f32(u + i32x16::splat(149 << 23)))};
  }
  DODONA_INLINE f32x16 reduced() const {
    const i32x16 integer = to_i32(abs(v)) | as_i32(sign_of(v));
    return as_f32(select(abs(v) < f32x16::splat(0x1p24f), integer, as_i32(v) - i32x16::splat(149 << 23)));
  }
  DODONA_INLINE Enlarged operator-() const { return {-v}; }
};

/// x * y rounded, y with all_factors.
DODONA_INLINE Enlarged multiply(Enlarged x, f32x16 y) {
  const f32x16 product = x.v * y, sign = sign_of(product), least = bit_or(f32x16::splat(0x1p23f), sign);
  return {select(abs(product) < f32x16::splat(0x1p23f), bit_or(fma(x.v, y, least) - least, sign), product)};
}

/// x * y + z rounded once. False, and nothing to be used, where a sum of larger terms becomes small.
DODONA_INLINE bool multiply_add(Enlarged x, f32x16 y, Enlarged z, Enlarged& sum) {
  const f32x16 direct = fma(x.v, y, z.v), sign = sign_of(direct), limit = f32x16::splat(0x1p23f), least = bit_or(limit, sign);
  const mask16 small = abs(direct) < limit;
  sum = {select(small, bit_or(fma(x.v, y, z.v + least) - least, sign), direct)};
  return !any(small & (abs(z.v) > limit));
}

}  // namespace dodona::DODONA_TIER
