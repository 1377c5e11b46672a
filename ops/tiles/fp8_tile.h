// Products of fp8 matrices in fast mode: fp32 fused multiply-adds over exactly decoded operands.
//
// Each output is one chain, k ascending: acc = fma(a[k], b[k], acc), from +0. So its bits depend on nothing but its row and its column.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dodona/dtype.h"
#include "simd/tier.h"

namespace dodona::ops {

/// Part of one product: rows of A times columns of B^T, both with k contiguous.
struct Fp8Tile {
  const std::uint8_t* a;          ///< rows x k, row stride k
  const std::uint8_t* b;          ///< columns x k, row stride k
  void* out;                      ///< rows x columns of bf16 or f16
  std::int64_t rows, columns, k;  ///< columns and k are multiples of 16
  std::int64_t out_stride;        ///< elements
  DType a_type, b_type, out_type;
  float scale;     ///< out = round(fl32(acc * scale))
  float* scratch;  ///< fp8_tile_scratch(rows, columns, k) floats, 64-byte aligned
};

/// The most rows and columns of a tile whose operands stay in a second-level cache.
inline constexpr std::int64_t fp8_tile_rows = 128, fp8_tile_columns = 576;
/// Columns that are decoded together: three vectors.
inline constexpr std::int64_t fp8_panel_columns = 48;
/// Products that are worked off before the operands' next part is decoded.
inline constexpr std::int64_t fp8_block_k = 512;

/// Row stride of decoded A: rows begin in different cache sets.
inline std::int64_t fp8_a_stride(std::int64_t k) {
  return (k < fp8_block_k ? k : fp8_block_k) + 16;
}
inline std::size_t fp8_tile_scratch(std::int64_t rows, std::int64_t columns, std::int64_t k) {
  return static_cast<std::size_t>(rows * fp8_a_stride(k) + fp8_panel_columns * fp8_a_stride(k) + rows * columns);
}

struct Fp8TileKernel {
  template <class Tier>
  static void run(const Fp8Tile& tile);
};

}  // namespace dodona::ops
