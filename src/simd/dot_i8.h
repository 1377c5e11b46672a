// Integer dot products of bytes, exact, hence the same on every tier in any order. Included by *.simd.cpp only.
#pragma once

#include <cstdint>

#include "simd/f32x16.h"

namespace dodona::DODONA_TIER {

/// acc[i] + sum over j = 0..3 of a[4i+j] * b[4i+j]: a's 64 bytes unsigned, b's signed, each lane holding four of them, the first in the
/// low byte. Products are never saturated; the sum wraps at 32 bits.
DODONA_INLINE i32x16 dpbusd(i32x16 acc, i32x16 a, i32x16 b) {
  return {lanes::dpbusd(acc.v, a.v, b.v)};
}

/// The same where a[0]*b[0] + a[1]*b[1] and a[2]*b[2] + a[3]*b[3] of every lane fit in 16 bits: a third of the work on AVX2.
DODONA_INLINE i32x16 dpbusd_small(i32x16 acc, i32x16 a, i32x16 b) {
  return {lanes::dpbusd_small(acc.v, a.v, b.v)};
}

/// 64 bytes of any alignment.
DODONA_INLINE i32x16 load_bytes(const void* p) {
  return i32x16::load(static_cast<const std::int32_t*>(p));
}
/// The same four bytes in every lane.
DODONA_INLINE i32x16 splat_bytes(const void* p) {
  std::int32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  return i32x16::splat(four);
}

DODONA_INLINE i32x16 dpbusd(i32x16 acc, const std::uint8_t* a, const std::int8_t* b) {
  return dpbusd(acc, load_bytes(a), load_bytes(b));
}

}  // namespace dodona::DODONA_TIER
