// Sums of integers over raw weights with few rows, which are exact in any order: k stays in lanes, as it lies in memory, and nothing is
// transposed but the sums. Included by *.simd.cpp only.
//
// A format that can do so has `multiply_raw(weights, panel, panels, a, rows, sums)`, which sets `total` for `rows` of them, at most
// its most_raw_rows.
#pragma once

#include <utility>

#include "ops/tiles/panel_i8/panel_i8.h"
#include "simd/f32x16.h"
#include "simd/registers.h"

namespace dodona::DODONA_TIER {

/// The most rows, whose sums with two vectors of weights stay in registers.
inline constexpr int raw_rows = many_sums_fit ? 8 : 4;

struct RawSums {
  i32x16 of[ops::i8_tile_panels][raw_rows][16];  ///< of sixteen vectors of sums, each to be added up over its lanes
  i32x16 total[ops::i8_tile_panels][raw_rows];   ///< of the panels' columns

  DODONA_INLINE void clear(std::int64_t panels, std::int64_t rows) {
    for (std::int64_t p = 0; p < panels; ++p)
      for (std::int64_t r = 0; r < rows; ++r) {
        DODONA_UNROLL(16)
        for (i32x16& sum : of[p][r]) sum = i32x16::zero();
      }
  }
};

/// body(rows, first) for `rows` rows, as many as `most` at a time and what is left by halves, but three together; `rows` is a constant.
template <int most, class Body>
DODONA_INLINE void by_halves(std::int64_t rows, const Body& body, std::int64_t first = 0) {
  for (; rows - first >= most; first += most) body(std::integral_constant<int, most>(), first);
  if constexpr (most == 4)
    if (rows - first == 3) return body(std::integral_constant<int, 3>(), first);
  if constexpr (most > 1)
    if (first < rows) by_halves<most / 2>(rows, body, first);
}

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
