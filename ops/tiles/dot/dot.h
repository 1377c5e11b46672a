// Products of bf16, f16 and f32 matrices in fast mode: pair sums (simd/bf16_pairs.h) of exactly widened operands, whatever the number of
// rows, the tier and the threads. So matrix units may add products of bf16 (dot_amx.h), and vectors do what is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dodona/dtype.h"
#include "dodona/exec.h"
#include "dodona/tensor.h"
#include "ops/tiles/epilogue.h"
#include "simd/tier.h"

namespace dodona::ops {

/// out[l, i, j] = round(sum over k of a[l, i, k] * b[l, k, j]), all of rank 3. The inner stride of `a` and `out` is 1, and one of the two
/// inner strides of `b`, which may be of another type.
struct DotProduct {
  Tensor a, b, out;
};
void dot_multiply(const DotProduct& product, const Exec& exec);

/// Whether the elements of `b` [.., K, N] lie next to each other along K or N.
bool has_dense_columns_or_rows(const Tensor& b);
/// Two a multiply-add.
double dot_flops(const DotProduct& product);

// ---- operands

/// Rows of A: inner stride 1.
struct DotRows {
  const std::byte* first;
  std::int64_t stride;  ///< bytes
  DType type;
};
/// Columns of B: element (k, j) at k * k_stride + j * column_stride elements. One of the strides is 1.
struct DotColumns {
  const std::byte* first;
  std::int64_t k_stride, column_stride;
  DType type;

  DotColumns from(std::int64_t column) const { return {first + column * column_stride * (bits(type) / 8), k_stride, column_stride, type}; }
};
/// Rows times columns, and what becomes of the sums.
struct DotMatrix {
  DotRows a;
  DotColumns b;
  std::int64_t rows, columns, k;
  TileEpilogue epilogue;
};
/// All of them by vectors, whatever units there are: those of experts say, of which each may be small.
void dot_multiply(std::span<const DotMatrix> matrices, const Exec& exec);
/// Of one of the batch.
DotRows dot_rows(const DotProduct& product, std::int64_t batch);
DotColumns dot_columns(const DotProduct& product, std::int64_t batch);

// ---- tiles of vectors

/// The most rows and columns of a tile whose operands stay in a second-level cache, and columns that are widened together: three vectors.
inline constexpr std::int64_t dot_tile_rows = 72, dot_tile_columns = 576, dot_columns_together = 48;
/// Elements of K of a tile that are worked off together, and those of widened columns, which stay in a first-level cache.
inline constexpr std::int64_t dot_part_k = 512, dot_block_k = 128;

/// Floats from a widened row to the next: rows begin in different cache sets.
inline std::int64_t dot_row_stride(std::int64_t k) {
  return (k + 31) / 32 * 32 + 16;
}
/// Rows of k elements to floats, for tiles with columns `b`: row by row, and zeros behind them to whole groups of 32; or as many as go to
/// lanes together k by k (dot_turned_lanes.h), in the room of as many rows.
struct DotWidenKernel {
  template <class Tier>
  static void run(const DotRows& rows, const DotColumns& b, std::int64_t count, std::int64_t k, float* to);
};

/// Part of one product: rows of A times columns of B.
struct DotTile {
  const float* a;  ///< from DotWidenKernel
  DotColumns b;    ///< from the tile's first column on
  std::int64_t row, rows, column, columns, k;
  const TileEpilogue* epilogue;
  bool wide_vectors_are_split;  ///< on this processor
  float* scratch;               ///< dot_tile_scratch(rows, columns) floats, 64-byte aligned
};
/// Sums of a row of a tile, and of columns that are added up beside the last ones.
inline std::int64_t dot_sums_stride(std::int64_t columns) {
  return (columns + 15) / 16 * 16 + 16;
}
/// Sums, and widened columns.
inline std::size_t dot_tile_scratch(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows * dot_sums_stride(columns) + dot_block_k * dot_columns_together);
}
struct DotTileKernel {
  template <class Tier>
  static void run(const DotTile& tile);
};

}  // namespace dodona::ops
