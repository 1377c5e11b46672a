// Integer dot products of bytes, exact, hence the same on every tier in any order. Included by *.simd.cpp only.
#pragma once

#include <cstdint>

#include "simd/f32x16.h"

namespace dodona::DODONA_TIER {

/// acc[i] + sum over j = 0..3 of a[4i+j] * b[4i+j]: a's 64 bytes unsigned, b's signed, each lane holding four of them, the first in the
/// low byte. Products are never saturated; the sum wraps at 32 bits.
DODONA_INLINE i32x16 dpbusd(i32x16 acc, i32x16 a, i32x16 b) {
#if DODONA_TIER_v4_vnni
  // The intrinsic takes lanes of another type than sums have between rounds: GCC keeps such sums twice, and stores one copy every round.
  asm("vpdpbusd %2, %1, %0" : "+v"(acc.v.v) : "v"(a.v.v), "v"(b.v.v));
  return acc;
#else
  return {lanes::dpbusd(acc.v, a.v, b.v)};
#endif
}

/// The same where a[0]*b[0] + a[1]*b[1] and a[2]*b[2] + a[3]*b[3] of every lane fit in 16 bits: a third of the work on AVX2.
DODONA_INLINE i32x16 dpbusd_small(i32x16 acc, i32x16 a, i32x16 b) {
#if DODONA_TIER_v4_vnni
  return dpbusd(acc, a, b);
#else
  return {lanes::dpbusd_small(acc.v, a.v, b.v)};
#endif
}

/// acc[i] + the four dot products of a[0..3] and b[0..3] in lane i, where the pairs of bytes 0 and 1, and those of bytes 2 and 3, of all
/// four sum to 16 bits: one widening instead of four where there are no byte dot products in hardware.
DODONA_INLINE i32x16 dot16_small(i32x16 acc, const i32x16 (&a)[4], const i32x16 (&b)[4]) {
#if DODONA_TIER_v4_vnni
  return dpbusd(dpbusd(dpbusd(dpbusd(acc, a[0], b[0]), a[1], b[1]), a[2], b[2]), a[3], b[3]);
#else
  return {lanes::dot16_small(acc.v, {a[0].v, a[1].v, a[2].v, a[3].v}, {b[0].v, b[1].v, b[2].v, b[3].v})};
#endif
}

/// Every byte of `indices`, all of them 0..15, replaced by that byte of the table: 16 bytes, given four times over.
DODONA_INLINE i32x16 lookup_bytes(i32x16 table, i32x16 indices) {
  return {lanes::lookup_bytes(table.v, indices.v)};
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
