// Products of panel.h with few rows of A and columns of fp8, made for weights from memory: the same chains over K, and the same bits.
//
// Many rows want columns unpacked to fp32, once for all of them, in a second-level cache. Few rows cannot wait for that. Here a step of K
// of some columns is transposed as codes, kept as 16-bit floats in the first-level cache, and widened on the way into the products, while
// what follows is fetched from memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/tiles/panel.h"

namespace dodona::ops {

/// Elements of K that are transposed before they are multiplied, two cache lines of codes, and the most columns that are worked on
/// together: few enough streams for a first-level TLB, and sums enough to hide what an addition takes.
inline constexpr std::int64_t panel_few_step = 128, panel_few_columns = 64;
/// The most rows.
inline constexpr std::int64_t panel_few_rows = 24;

/// Whether a product is one of these.
inline bool has_few_rows(const PanelProduct& p) {
  const bool fp8 = p.b.type == DType::f8_e4m3 || p.b.type == DType::f8_e5m2;
  return fp8 && p.m <= panel_few_rows && p.block % panel_few_step == 0;
}

/// Row stride of unpacked A: rows begin in different cache sets.
inline std::int64_t panel_few_a_stride(std::int64_t k) {
  return (k + 15) / 16 * 16 + 16;
}

/// All rows of A of a batch as fp32, times what the columns' format leaves out.
struct PanelFewRowsKernel {
  template <class Tier>
  static void run(const PanelProduct& product, std::int64_t batch, float* to);
};

/// All rows of one of the products times some columns.
struct PanelFewTile {
  const PanelProduct* product;
  std::int64_t batch, column, columns;
  const float* a;  ///< from PanelFewRowsKernel, row stride panel_few_a_stride(k)
  float* scratch;  ///< panel_few_scratch(m) floats, 64-byte aligned
};
/// Sixteen-bit floats of a step; of every row chains and sums; scales of columns.
inline std::size_t panel_few_scratch(std::int64_t m) {
  return static_cast<std::size_t>(panel_few_columns * (panel_few_step / 2 + 2 * m + 1));
}
struct PanelFewTileKernel {
  template <class Tier>
  static void run(const PanelFewTile& tile);
};

}  // namespace dodona::ops
