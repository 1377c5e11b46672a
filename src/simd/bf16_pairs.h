// Pairs of bf16 in words of 32 bits, as matrix units add them up (`dot_bf16` of simd/amx_tiles.h): what may be told of their sums from the
// sizes of their factors. Included by *.simd.cpp only.
//
// Pair sums are the one order in which products of 16-bit numbers are added. K goes in groups of pair_group from its beginning, the last
// one filled up with zeros. Of a group
//     even = the chain even = fma(a[k], b[k], even) over its even k, from +0, ascending;  odd likewise over its odd k
//     sum  = sum + (even + odd)
// and the sum is +0 before the first group, or what it begins with.
#pragma once

#include <bit>
#include <cstdint>

#include "simd/f32x16.h"

namespace dodona::DODONA_TIER {

inline constexpr std::int64_t pair_group = 32;

DODONA_INLINE f32x16 even_of_pairs(i32x16 words) {
  return as_f32(shl<16>(words));
}
DODONA_INLINE f32x16 odd_of_pairs(i32x16 words) {
  return as_f32(words & i32x16::splat(-0x10000));
}

/// The least magnitude of some bf16 that are not zero, and the largest, as their bits without the sign.
struct Magnitudes {
  std::int32_t least = 0x8000;  ///< more than any number: there are zeros alone
  std::int32_t most = 0;

  bool finite() const { return most < 0x7F80; }
  DODONA_INLINE void join(const Magnitudes& other) {
    least = other.least < least ? other.least : least;
    most = other.most > most ? other.most : most;
  }
};

/// Of sixteen words at a time.
struct PairMagnitudes {
  // Of each half 2^15 less the magnitude, by which a zero is least of all signed numbers.
  i32x16 below = i32x16::splat(static_cast<std::int32_t>(0x80008000u)), most = i32x16::zero();

  DODONA_INLINE void add(i32x16 words) {
    const i32x16 magnitudes = words & i32x16::splat(0x7FFF7FFF);
    below = max_16(below, i32x16::splat(static_cast<std::int32_t>(0x80008000u)) - magnitudes);
    most = max_16(most, magnitudes);
  }
  DODONA_INLINE Magnitudes result() const {
    std::int16_t b[32], m[32];
    below.store(reinterpret_cast<std::int32_t*>(b));
    most.store(reinterpret_cast<std::int32_t*>(m));
    Magnitudes all;
    for (int i = 0; i < 32; ++i) all.join({b[i] == -0x8000 ? 0x8000 : 0x8000 - b[i], m[i]});
    return all;
  }
};

/// Whether neither factors nor sums of products are denormal, however many there are: factors are normal, and every product is a multiple
/// of 2^-126, so that each sum is too, rounded or not. Then units that flush denormals add as vectors do.
DODONA_INLINE bool sums_are_normal(const Magnitudes& a, const Magnitudes& b) {
  // Biased exponents; the digits of a product of two bf16 end at most 14 places below.
  const std::int32_t ea = a.least >> 7, eb = b.least >> 7;
  return ea >= 1 && eb >= 1 && (ea - 127) + (eb - 127) - 14 >= -126;
}

}  // namespace dodona::DODONA_TIER
