// What products of panel_i8.h share in vector code, whatever multiplies: what becomes of a block's sum, and panels decoded. Included by
// *.simd.cpp only.
#pragma once

#include "ops/tiles/epilogue_lanes.h"
#include "ops/tiles/panel_i8.h"
#include "ops/tiles/unpack/int4.h"
#include "ops/tiles/unpack/int8.h"
#include "ops/tiles/unpack/nvfp4.h"
#include "ops/tiles/unpack/qserve.h"

namespace dodona::DODONA_TIER {

/// Every block has scales of its own, or `together` blocks of sixteen, whose sum is one integer.
template <int together>
struct ScaledBlocks {
  using Sum = f32x16;
  static constexpr bool scaled = true;
  static constexpr int blocks_together = together;
  static DODONA_INLINE Sum first(const std::int32_t*) { return f32x16::zero(); }
  static DODONA_INLINE Sum load(const float* p) { return f32x16::load(p); }
  static DODONA_INLINE void store(Sum sum, float* p) { sum.store(p); }
  static DODONA_INLINE Sum add(Sum sum, i32x16 dot, f32x16 weight_scales, float row_scale) {
    return fma(to_f32(dot), weight_scales * f32x16::splat(row_scale), sum);
  }
  static DODONA_INLINE f32x16 result(const float* p) { return f32x16::load(p); }
};

/// Integers to the end, and their correction at the beginning.
struct WholeSums {
  using Sum = i32x16;
  static constexpr bool scaled = false;
  static constexpr int blocks_together = 1;
  static DODONA_INLINE Sum first(const std::int32_t* corrections) { return i32x16::splat(*corrections); }
  static DODONA_INLINE Sum load(const float* p) { return as_i32(f32x16::load(p)); }
  static DODONA_INLINE void store(Sum sum, float* p) { as_f32(sum).store(p); }
  static DODONA_INLINE Sum add(Sum sum, i32x16 dot, f32x16, float) { return sum + dot; }
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

/// Packed weights of a piece's next chunk, which are fetched a few lines at a time while this one is multiplied: all at once they would
/// stand in each other's way. A fetch beyond the end does nothing.
class WeightsAhead {
 public:
  WeightsAhead() = default;
  /// `bytes` of each of `panels` panels, `stride` bytes apart, in so many `turns`.
  DODONA_INLINE WeightsAhead(const std::uint8_t* first, std::int64_t panels, std::int64_t stride, std::int64_t bytes, std::int64_t turns)
      : panel_(reinterpret_cast<std::uintptr_t>(first)),
        stride_(static_cast<std::uintptr_t>(stride)),
        bytes_(static_cast<std::uintptr_t>(bytes)),
        lines_(panels * ((bytes + 63) / 64)),
        each_((lines_ + turns - 1) / turns) {}
  DODONA_INLINE void fetch() {
    const std::int64_t now = each_ < lines_ ? each_ : lines_;
    lines_ -= now;
    for (std::int64_t i = 0; i < now; ++i) {
      const auto* const line = reinterpret_cast<const void*>(panel_ + at_);  // NOLINT(performance-no-int-to-ptr)
      __builtin_prefetch(line, 0, 2);
      at_ += 64;
      if (at_ >= bytes_) at_ = 0, panel_ += stride_;
    }
  }

 private:
  std::uintptr_t panel_ = 0, stride_ = 0, bytes_ = 0, at_ = 0;
  std::int64_t lines_ = 0, each_ = 0;
};

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
