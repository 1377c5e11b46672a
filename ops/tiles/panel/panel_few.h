// Products of panel.h with few rows of A and columns of fp8, made for weights from memory: the same pair sums, and the same bits.
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

#include "ops/tiles/panel/panel.h"

namespace dodona::ops {

inline constexpr std::int64_t panel_few_columns = 64;
/// Bytes before the codes of a packed panel, and those of four k.
inline constexpr std::int64_t panel_few_head = 64, panel_few_line = 4 * panel_few_columns;
/// What a packed panel begins with.
struct PanelFewHead {
  std::int32_t nans;  ///< whether a code is NaN of e4m3
  std::int32_t rare;  ///< whether subnormal codes of e4m3 are rare
};
/// Elements of K that are packed of raw columns at a time, four lines of each: their codes and what else a tile works on stay in a
/// first-level cache.
inline constexpr std::int64_t panel_few_chunk = 256;

/// Bytes of `k` elements of a panel without its head.
inline std::int64_t panel_few_bytes(std::int64_t k) {
  return (k + 3) / 4 * panel_few_line;
}

/// Whether a product of at most `most_rows` rows is one of these: blocks are whole lines of raw columns.
inline bool has_few_rows(const PanelProduct& p, std::int64_t most_rows) {
  const bool fp8 = p.b.type == DType::f8_e4m3 || p.b.type == DType::f8_e5m2;
  return fp8 && p.m <= most_rows && p.block % 64 == 0;
}

/// Raw columns with scales: blocks of K that are worked on side by side, of sixteen columns. They are streams few enough for a first-level
/// cache and its table of pages, where those of a whole panel are not.
inline constexpr int panel_few_blocks = 4;
inline bool panel_few_by_blocks(const PanelProduct& p, std::int64_t most_rows) {
  return !p.b.packed && p.block > 0 && p.block <= panel_few_chunk && p.m <= most_rows && p.k >= panel_few_blocks * p.block;
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
  bool by_blocks;                    ///< panel_few_by_blocks
  const float* a;                    ///< from PanelFewRowsKernel, row stride panel_few_a_stride(k)
  float* scratch;                    ///< panel_few_scratch(m) floats, 64-byte aligned
  bool subnormals_are_free = false;  ///< whether products of subnormal numbers take no longer than others on this processor
};
/// Bytes before packed lines, for words that are read from before their first byte on (unpack/fp8.h).
inline constexpr std::int64_t panel_few_lead = 64;
/// Those, packed lines; of every row sums of a block and those of all; scales of columns.
inline std::size_t panel_few_scratch(std::int64_t m) {
  return static_cast<std::size_t>((panel_few_lead + panel_few_bytes(panel_few_chunk)) / 4 + panel_few_columns * (2 * m + 1));
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
