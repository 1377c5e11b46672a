// What products of panel_i8.h share in vector code, whatever multiplies: what becomes of a block's sum, and panels decoded. Included by
// *.simd.cpp only.
#pragma once

#include "ops/tiles/epilogue_lanes.h"
#include "ops/tiles/panel_i8/panel_i8.h"
#include "ops/tiles/unpack/int4.h"
#include "ops/tiles/unpack/int8.h"
#include "ops/tiles/unpack/nvfp4.h"
#include "ops/tiles/unpack/qserve.h"
#include "ops/tiles/weights_ahead.h"

namespace dodona::DODONA_TIER {

/// Sums in fp32, from zero.
struct ScaledSums : FloatSums {
  using Sum = f32x16;
  static constexpr bool scaled = true;
  static DODONA_INLINE Sum first(const std::int32_t*) { return f32x16::zero(); }
  static DODONA_INLINE Sum load(const float* p) { return f32x16::load(p); }
  static DODONA_INLINE void store(Sum sum, float* p) { sum.store(p); }
};

/// A step's blocks of sixteen, two of which go together: what the first leaves open, the second adds to the sum. `of_scales` have scales
/// and a correction in common. This way every block has its own; both become one term.
struct PairsOfBlocks : ScaledSums {
  using Open = f32x16;
  static constexpr int blocks_together = 2, of_scales = 1;
  static DODONA_INLINE i32x16 begin(Open, int, std::int32_t correction) { return i32x16::splat(correction); }
  static DODONA_INLINE Open open(i32x16 dot, f32x16 scales) { return to_f32(dot) * scales; }
  static DODONA_INLINE Sum add(Sum sum, Open open, i32x16 dot, f32x16 scales) { return sum + fma(to_f32(dot), scales, open); }
};
/// The sum of both blocks is one integer.
struct BlocksOfTwo : ScaledSums {
  using Open = i32x16;
  static constexpr int blocks_together = 2, of_scales = 2;
  static DODONA_INLINE i32x16 begin(Open open, int turn, std::int32_t correction) { return turn == 0 ? i32x16::splat(correction) : open; }
  static DODONA_INLINE Open open(i32x16 dot, f32x16) { return dot; }
  static DODONA_INLINE Sum add(Sum sum, Open, i32x16 dot, f32x16 scales) { return fma(to_f32(dot), scales, sum); }
};

/// Integers to the end, and their correction at the beginning.
struct WholeSums {
  using Sum = i32x16;
  using Open = i32x16;
  static constexpr bool scaled = false;
  static constexpr int blocks_together = 1;
  static DODONA_INLINE Sum first(const std::int32_t* corrections) { return i32x16::splat(*corrections); }
  static DODONA_INLINE Sum load(const float* p) { return as_i32(f32x16::load(p)); }
  static DODONA_INLINE void store(Sum sum, float* p) { as_f32(sum).store(p); }
  static DODONA_INLINE f32x16 result(const float* p) { return to_f32(load(p)); }
};

/// What becomes of a tile's sums.
using ops::i8_sums_stride;
template <class Sums>
void store_tile(const ops::I8Tile& tile) {
  const float* sums = tile.sums;
  for (std::int64_t pair = 0; pair < tile.panels; pair += ops::i8_tile_panels) {
    const std::int64_t first = (tile.first_panel + pair) * ops::i8_panel_columns, left = tile.weights->n - first;
    const std::int64_t columns = left < i8_sums_stride ? left : i8_sums_stride;
    for (std::int64_t r = 0; r < tile.rows; ++r, sums += i8_sums_stride)
      finish_row<Sums>(*tile.epilogue, tile.row + r, first, columns, sums);
  }
}

template <class Unpack, class Sums>
DODONA_INLINE f32x16 scales_of(const std::uint8_t* packed, int block) {
  if constexpr (Sums::scaled) {
    return Unpack::scales(packed, block);
  } else {
    return f32x16::zero();
  }
}

/// `steps` of a packed panel, decoded: for each block 4 x 64 bytes of weights plus their offset, and sixteen scales.
template <class Unpack, class Sums>
void decode(const std::uint8_t* packed, std::int64_t steps, std::uint8_t* weights, float* scales) {
  const i32x16 table = Unpack::table();
  for (std::int64_t s = 0; s < steps; ++s, packed += Unpack::step_bytes) {
    DODONA_UNROLL(4)
    for (int block = 0; block < ops::i8_step / ops::i8_block; ++block) {
      i32x16 w[4];
      Unpack::decode(packed, block, table, w);
      DODONA_UNROLL(4)
      for (int i = 0; i < 4; ++i) w[i].store(reinterpret_cast<std::int32_t*>(weights + 64 * i));
      if constexpr (Sums::scaled) Unpack::scales(packed, block).store(scales);
      weights += 256;
      scales += 16;
    }
  }
}

}  // namespace dodona::DODONA_TIER
