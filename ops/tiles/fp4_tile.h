// NVFP4 matrix products in fast mode: exact integer sums over blocks of sixteen, combined in fp32.
//
// Each output is one chain over its blocks, k ascending, from +0: acc = fma(dot_j, A_scale_j * B_scale_j, acc). dot_j is the sum of the
// products of doubled codes, integers of at most 12: exact, at most 2304. The product of two e4m3 scales is exact. Then
// out = round(fl32(acc/4 * alpha)). So an output's bits depend on nothing but its row and its column.
//
// Weights are worked on in panels of 16 rows of B, one to a lane, and steps of 64 k. A step of a panel is 576 bytes: eight vectors of
// codes (lane r of vector v: the four bytes of row r that hold k = 8v..8v+7), then the scales of four blocks, 16 rows each. K is padded
// to whole steps with zero codes and zero scales, which change no sum. 4.5 bits a weight, read in one stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dodona/dtype.h"
#include "simd/tier.h"

namespace dodona::ops {

inline constexpr std::int64_t fp4_block = 16, fp4_step = 64;
inline constexpr std::int64_t fp4_panel_rows = 16, fp4_step_bytes = 576;
/// Panels that are multiplied together.
inline constexpr std::int64_t fp4_tile_panels = 2;
/// The most rows of A in one tile.
inline constexpr std::int64_t fp4_tile_rows = 128;

inline std::int64_t fp4_steps(std::int64_t k) {
  return (k + fp4_step - 1) / fp4_step;
}
inline std::int64_t fp4_panel_bytes(std::int64_t k) {
  return fp4_steps(k) * fp4_step_bytes;
}

/// Weights [n, k], either packed or as the op's arguments hold them.
struct Fp4Weights {
  const std::uint8_t* packed = nullptr;  ///< panels, one after another; nullptr: read the two below
  const std::uint8_t* codes = nullptr;   ///< [n, k/2]
  const std::uint8_t* scales = nullptr;  ///< [align(n,128), align(k/16,4)] in tiles of 128 x 4
  std::int64_t n = 0, k = 0;             ///< multiples of 32
};

/// Rows of A made ready: doubled codes as signed bytes, within every eight k the even ones first; what the weights' offset of 12 adds to
/// each block's sum, negated; scales. Rows are padded to whole steps.
struct Fp4Rows {
  std::int8_t* codes;         ///< row stride 64 * fp4_steps(k)
  std::int32_t* corrections;  ///< row stride 4 * fp4_steps(k)
  float* scales;              ///< likewise
};

/// Rows [.., rows] of A times `panels` panels of B.
struct Fp4Tile {
  Fp4Weights weights;
  std::int64_t first_panel, panels;  ///< at most fp4_tile_panels
  Fp4Rows a;
  std::int64_t rows;  ///< at most fp4_tile_rows
  float alpha;
  DType out_type;           ///< bf16, f16 or f32
  void* out;                ///< of the tile's first row and column
  std::int64_t out_stride;  ///< elements
};

struct Fp4TileKernel {
  template <class Tier>
  static void run(const Fp4Tile& tile);
};

/// Packs one panel of raw weights to fp4_panel_bytes(k) bytes.
struct Fp4PackKernel {
  template <class Tier>
  static void run(const Fp4Weights& weights, std::int64_t panel, std::uint8_t* out);
};

/// Codes and corrections of one row of A; `scales` are not touched.
struct Fp4ActivationKernel {
  template <class Tier>
  static void run(const std::uint8_t* codes, std::int64_t k, const Fp4Rows& out);
};

}  // namespace dodona::ops
