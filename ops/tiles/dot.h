// Products of bf16, f16 and f32 matrices in fast mode, made for few rows and weights from memory: fp32 fused multiply-adds over exactly
// widened operands, k in lanes.
//
// Every output is summed in one order, whatever the number of rows, the tier and the threads: sixteen lanes, lane l taking the products
// of k = 32 j + 2 l and then k = 32 j + 2 l + 1 for j = 0, 1, ..., each acc = fma(a, b, acc) from +0; then the tree of f32x16.h.
// Pairs, because the two bf16 of a 32-bit word widen in place: one by a shift, one by a mask.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dodona/dtype.h"
#include "dodona/exec.h"
#include "dodona/tensor.h"
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

// ---- tiles

/// Elements of K that are worked on at a time; packed rows are filled up with zeros to a multiple of it.
inline constexpr std::int64_t dot_step = 32;
/// The most rows and columns of a tile, and the part of K after which a tile of many rows turns to the next columns.
inline constexpr std::int64_t dot_tile_rows = 64, dot_tile_columns = 48, dot_block_k = 1024;
/// Columns of a tile. While all rows stay near, fewer columns are longer streams from memory.
inline std::int64_t dot_columns(std::int64_t rows) {
  return rows > 6 && rows <= 32 ? dot_tile_columns / 2 : dot_tile_columns;
}

/// Floats of a packed row.
inline std::int64_t dot_padded(std::int64_t k) {
  return (k + dot_step - 1) / dot_step * dot_step;
}

/// Rows of k elements to floats, in the order in which lanes take them: of each 32 elements those of even index, then those of odd index.
/// Vectors of rows that are multiplied together lie side by side.
struct DotRows {
  DType type;
  const void* source;
  std::int64_t stride_bytes, rows, k;
  float* destination;  ///< rows * dot_padded(k)
};
struct DotPackKernel {
  template <class Tier>
  static void run(const DotRows& rows);
};

/// Part of one product: rows of A times columns of B.
struct DotTile {
  const float* a;  ///< packed rows
  /// Columns of B: element (k, j) at k * b_k_stride + j * b_column_stride elements. One of the strides is 1.
  const void* b;
  std::int64_t b_k_stride, b_column_stride;
  DType b_type;
  std::int64_t rows, columns, k;
  void* out;                ///< rows x columns, inner stride 1
  std::int64_t out_stride;  ///< elements
  DType out_type;
  float* scratch;  ///< dot_tile_scratch(rows) floats, 64-byte aligned
};

/// Sums of all lanes of a tile, and columns of B that had to be packed.
inline std::size_t dot_tile_scratch(std::int64_t rows) {
  return static_cast<std::size_t>((rows * 16 + dot_block_k + 16) * dot_tile_columns);
}

struct DotTileKernel {
  template <class Tier>
  static void run(const DotTile& tile);
};

}  // namespace dodona::ops
