// Sums of integers over raw weights with few rows, which are exact in any order: k stays in lanes, as it lies in memory, and nothing is
// transposed but the sums. Included by *.simd.cpp only.
//
// A format that can do so has `multiply_raw<rows>(weights, panel, panels, a, sums)`, which sets `total` for rows 0 to `rows` - 1.
#pragma once

#include "ops/tiles/panel_i8.h"
#include "simd/f32x16.h"
#include "simd/registers.h"

namespace dodona::DODONA_TIER {

template <int rows>
struct RawSums {
  i32x16 of[ops::i8_tile_panels][rows][16];  ///< of sixteen vectors of sums, each to be added up over its lanes
  i32x16 total[ops::i8_tile_panels][rows];   ///< of the panels' columns
};

/// Lane i: the lanes of sums[i], added up; and those of even index and those of odd index apart.
struct LaneSums {
  i32x16 even, odd;
};
DODONA_INLINE LaneSums sums_of_lanes(const i32x16 (&sums)[16]) {
  i32x16 lane[16];
  DODONA_UNROLL(16)
  for (int i = 0; i < 16; ++i) lane[i] = sums[i];
  transpose(lane);
  DODONA_UNROLL(4)
  for (int half = 8; half > 1; half /= 2) {
    DODONA_UNROLL(8)
    for (int i = 0; i < half; ++i) lane[i] = lane[i] + lane[i + half];
  }
  return {lane[0], lane[1]};
}
DODONA_INLINE i32x16 sum_of_lanes(const i32x16 (&sums)[16]) {
  const LaneSums both = sums_of_lanes(sums);
  return both.even + both.odd;
}

}  // namespace dodona::DODONA_TIER
