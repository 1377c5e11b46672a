// Rows of bf16 that hold neither NaN nor infinities, which is the rule: they go without a look at what becomes of these, and are done again
// where a look at all of them, on the way, finds some. Included by *.simd.cpp only.
#pragma once

#include "ops/base/row_lanes.h"

namespace dodona::DODONA_TIER {

/// Magnitudes of bf16, two to a lane, looked at on the way.
struct PairsSeen {
  i32x16 largest = i32x16::zero();

  DODONA_INLINE void see(i32x16 pairs) { largest = max_16(pairs & i32x16::splat(0x7FFF7FFF), largest); }
  DODONA_INLINE i32x16 load(const void* p) {
    const i32x16 x = i32x16::load(static_cast<const std::int32_t*>(p));
    see(x);
    return x;
  }
  /// Whether none is larger than that of this code; NaN is larger than all.
  DODONA_INLINE bool up_to(std::int32_t code) const {
    const i32x16 most = i32x16::splat((code << 16) | 0xFFFF);
    return !any(shl<16>(largest) > most) && !any(largest > most);
  }
};

/// Of what is no NaN, the nearest bf16 in the upper half of each lane.
DODONA_INLINE i32x16 rounded_number_bits(f32x16 x) {
  const i32x16 u = as_i32(x);
  return u + i32x16::splat(0x7FFF) + (shr<16>(u) & i32x16::splat(1));
}
DODONA_INLINE f32x16 round_number_to_bf16(f32x16 x) {
  return as_f32(rounded_number_bits(x) & i32x16::splat(-0x10000));
}
/// As Bf16Lanes::store_two stores them.
DODONA_INLINE i32x16 pairs_of_numbers(Two x) {
  return shr<16>(rounded_number_bits(x.a)) | (rounded_number_bits(x.b) & i32x16::splat(-0x10000));
}

}  // namespace dodona::DODONA_TIER
