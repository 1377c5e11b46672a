// Products of panel.h with few rows of A and columns of fp8 or i4, made for weights from memory: the same chains over K, and the same bits.
//
// Many rows want columns unpacked to fp32, once for all of them, in a second-level cache. Few rows cannot wait for that. They take columns
// as they are packed and widen them in registers on the way into the products. Packed weights are read in one stream; of raw ones lines of
// a panel's columns are packed into a first-level cache, while what follows is fetched from memory.
//
// Packed columns are panels of 64, one after another. A panel is a line that begins with PanelFewHead, and for every four k four lines of
// 64 bytes, one for each sixteen columns: four bytes of each column. K is filled up to whole fours, and the last panel to 64 columns, with
// zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/tiles/panel.h"

namespace dodona::ops {

inline constexpr std::int64_t panel_few_columns = 64;
/// Bytes before the codes of a packed panel, and those of four k.
inline constexpr std::int64_t panel_few_head = 64, panel_few_line = 4 * panel_few_columns;
/// What a packed panel begins with.
struct PanelFewHead {
  std::int32_t nans;  ///< whether a code is NaN of e4m3
  std::int32_t rare;  ///< whether subnormal codes of e4m3 are rare
};
/// Raw columns are packed a line of each at a time, 64 elements, of i4 128: blocks of K are of a multiple of that. Bytes of those of a
/// panel.
inline std::int64_t panel_few_line_k(DType type) {
  return type == DType::i4 ? 128 : 64;
}
inline constexpr std::int64_t panel_few_packed_lines = 64 * panel_few_columns;
/// Raw columns with scales, for at most so many rows: blocks of K that are worked on side by side, and of how many columns. More columns
/// would not fit into the same sets of a first-level cache where they begin a multiple of 1024 bytes apart. Each block takes elements of
/// the rows for itself: a single row has time for four. More rows have sums enough to work on, and take a block of more columns.
inline constexpr std::int64_t panel_few_side_by_side_rows = 4;
inline std::int64_t panel_few_blocks(const PanelProduct& p) {
  return p.m == 1 ? 4 : 2;
}
inline std::int64_t panel_few_block_columns(const PanelProduct& p) {
  return panel_few_columns / panel_few_blocks(p);
}

/// Bytes of `k` elements of a panel without its head.
inline std::int64_t panel_few_bytes(std::int64_t k) {
  return (k + 3) / 4 * panel_few_line;
}

/// Whether a product of at most `most_rows` rows is one of these. Rows of i4 columns are codes of eight bits, to which powers of two may be
/// left.
inline bool has_few_rows(const PanelProduct& p, std::int64_t most_rows) {
  const bool fp8 = p.b.type == DType::f8_e4m3 || p.b.type == DType::f8_e5m2;
  const bool i4 = p.b.type == DType::i4 && bits(p.a.type) == 8 && p.k % panel_few_line_k(DType::i4) == 0;
  return (fp8 || i4) && p.m <= most_rows && p.block % panel_few_line_k(p.b.type) == 0;
}

/// Whether blocks of K are worked on side by side.
inline bool panel_few_by_blocks(const PanelProduct& p) {
  return !p.b.packed && p.block > 0 && p.m <= panel_few_side_by_side_rows;
}

/// Row stride of unpacked A: rows begin in different cache sets.
inline std::int64_t panel_few_a_stride(std::int64_t k) {
  return (k + 15) / 16 * 16 + 16;
}

/// Rows that are made ready: for e4m3 by e4m3 twice, as either way of widening codes takes them.
inline std::int64_t panel_few_a_rows(const PanelProduct& p) {
  return p.a.type == DType::f8_e4m3 && p.b.type == DType::f8_e4m3 ? 2 * p.m : p.m;
}

/// All rows of A of a batch as fp32, times what the columns' format leaves out.
struct PanelFewRowsKernel {
  template <class Tier>
  static void run(const PanelProduct& product, std::int64_t batch, float* to);
};

/// All rows of one of the products times some columns of one panel.
struct PanelFewTile {
  const PanelProduct* product;
  std::int64_t batch, column, columns;
  const float* a;                    ///< from PanelFewRowsKernel, row stride panel_few_a_stride(k)
  float* scratch;                    ///< panel_few_scratch(m) floats, 64-byte aligned
  bool subnormals_are_free = false;  ///< whether products of subnormal numbers take no longer than others on this processor
};
/// Packed lines; of every row chains and sums; scales of columns.
inline std::size_t panel_few_scratch(std::int64_t m) {
  return static_cast<std::size_t>(panel_few_packed_lines / 4 + panel_few_columns * (2 * m + 1));
}
struct PanelFewTileKernel {
  template <class Tier>
  static void run(const PanelFewTile& tile);
};

/// Packs raw columns of fp8 from `first` on to one panel.
struct PanelFewPackKernel {
  template <class Tier>
  static void run(const PanelOperand& columns, std::int64_t first, std::int64_t n, std::int64_t k, std::byte* panel);
};

}  // namespace dodona::ops
