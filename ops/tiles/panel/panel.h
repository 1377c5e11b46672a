// Products of matrices in fast mode, in fp32 over exactly unpacked operands: fp8, bf16, f16, f32, int8.
//
// An output is the pair sum over K (simd/bf16_pairs.h). With block scales there is such a sum for every block of K, whose groups are
// counted from the block's beginning, and after each acc = fma(sum, fl32(a_scale * b_scale), acc), acc from +0. Then the epilogue. So an
// output's bits depend on nothing but its row and its column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dodona/dtype.h"
#include "dodona/exec.h"
#include "ops/tiles/epilogue.h"
#include "simd/tier.h"

namespace dodona::ops {

/// Rows of A, or columns of B, with k contiguous, or packed. f8_e4m3, f8_e5m2, bf16, f16, f32, i8. A format of its own is a file in
/// unpack/ and a line in panel.simd.cpp.
struct PanelOperand {
  const std::byte* data = nullptr;
  std::int64_t stride = 0;        ///< bytes from row to row, or column to column
  std::int64_t batch_stride = 0;  ///< bytes
  DType type = DType::f32;
  bool packed = false;  ///< columns of fp8 alone: from panel_pack, `stride` bytes from panel to panel, and one batch
};

/// Scales of an operand's blocks: that of row (or column) i and block j of K is element i / together * stride + j * block_stride.
struct PanelScales {
  const float* data = nullptr;
  std::int64_t together = 1;  ///< rows (or columns) that share one
  std::int64_t stride = 0, block_stride = 1;
};

struct PanelProduct {
  std::int64_t batches = 1, m = 0, n = 0, k = 0;
  PanelOperand a, b;
  std::int64_t block = 0;  ///< elements of K that share scales, at most panel_block_k; 0: none do
  PanelScales a_scales, b_scales;
  TileEpilogue epilogue;
  std::int64_t out_batch_stride = 0;  ///< elements
};

/// Products of bf16, f16 and f32 alone go on to dot_multiply where no unit takes them: the sums are the same.
/// Throws Error only when memory for scratch is lacking. Of several products, those of experts say, each output depends on its own alone.
void panel_multiply(std::span<const PanelProduct> products, const Exec& exec);
void panel_multiply(const PanelProduct& product, const Exec& exec);

/// Columns of fp8 [n, k] packed for fast reading, panel_packed_bytes(n, k) bytes: products with them have the bits of raw ones.
std::int64_t panel_packed_bytes(std::int64_t n, std::int64_t k);
void panel_pack(const PanelOperand& columns, std::int64_t n, std::int64_t k, std::byte* panels, const Exec& exec);
/// Those columns as B.
PanelOperand packed_operand(DType type, const std::byte* panels, std::int64_t k);

// ---- tiles

/// The most rows and columns of a tile whose operands stay in a second-level cache.
inline constexpr std::int64_t panel_tile_rows = 128, panel_tile_columns = 576;
/// Columns that are unpacked together: three vectors.
inline constexpr std::int64_t panel_columns = 48;
/// Elements of K that are worked off before the rows' next part is unpacked; and the columns' where no blocks of scales say, so that they
/// stay in a first-level cache. Whole groups of pair sums.
inline constexpr std::int64_t panel_block_k = 512, panel_unpacked_k = 128;

/// Part of one of the products. The first column is a multiple of sixteen.
struct PanelTile {
  const PanelProduct* product;
  std::int64_t batch, row, rows, column, columns;
  bool wide_vectors_are_split;  ///< on this processor
  float* scratch;               ///< panel_tile_scratch(rows, columns, k) floats, 64-byte aligned
};

/// Row stride of unpacked A: rows begin in different cache sets.
inline std::int64_t panel_a_stride(std::int64_t k) {
  return ((k < panel_block_k ? k : panel_block_k) + 15) / 16 * 16 + 16;
}
/// Sums of a row of a tile.
inline std::int64_t panel_sums_stride(std::int64_t columns) {
  return (columns + 15) / 16 * 16;
}
/// Unpacked rows, an unpacked panel, sums, and the scales of a block: of rows, and of columns.
inline std::size_t panel_tile_scratch(std::int64_t rows, std::int64_t columns, std::int64_t k) {
  return static_cast<std::size_t>((rows + panel_columns) * panel_a_stride(k) + rows * panel_sums_stride(columns) + (rows + 15) / 16 * 16 +
                                  panel_columns);
}

struct PanelTileKernel {
  template <class Tier>
  static void run(const PanelTile& tile);
};

}  // namespace dodona::ops
