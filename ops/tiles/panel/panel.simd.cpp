#include "ops/tiles/panel/panel.h"

#include "ops/tiles/panel/panel_core.h"
#include "ops/tiles/panel/panel_few.h"
#include "ops/tiles/panel/panel_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::PanelProduct;
using ops::PanelTile;

constexpr std::int64_t panel = ops::panel_columns;

// ---- multiplying

/// Where sums of some rows and columns begin and go, without block scales and with them.
struct Unscaled {
  SumsAt sums;
  template <int rows, int vectors, bool together, class Operands>
  DODONA_INLINE void add(const Operands& o) const {
    pair_sums<rows, vectors, together>(o, sums, sums);
  }
  DODONA_INLINE void next_rows(std::int64_t rows) { sums.c += rows * sums.c_row; }
  DODONA_INLINE Unscaled from_column(std::int64_t column) const { return {{sums.c + column, sums.c_row}}; }
};
/// After a block of K: sums += that of the block * scale of row * scale of column.
struct BlockScaled {
  SumsAt sums;
  const float *row_scales, *column_scales;
  template <int rows, int vectors, bool together, class Operands>
  DODONA_INLINE void add(const Operands& o) const {
    float memory[sum_lanes * rows * vectors];
    const SumsAt block{memory, sum_lanes * vectors};
    pair_sums<rows, vectors, together>(
        o, [](int, int) { return SumLanes::zero(); }, block);
    DODONA_UNROLL(8)
    for (int i = 0; i < rows; ++i) {
      DODONA_UNROLL(4)
      for (int v = 0; v < vectors; ++v)
        sums(i, v, fma(block(i, v), SumLanes::splat(row_scales[i]) * SumLanes::load(column_scales + sum_lanes * v), sums(i, v)));
    }
  }
  DODONA_INLINE void next_rows(std::int64_t rows) {
    sums.c += rows * sums.c_row;
    row_scales += rows;
  }
  DODONA_INLINE BlockScaled from_column(std::int64_t column) const {
    return {{sums.c + column, sums.c_row}, row_scales, column_scales + column};
  }
};

using Operands = PanelOperands<std::int64_t, Known<1>, Known<panel>>;

/// Of 16 registers 8: as many chains as keep two units of four cycles busy. With 12 what ends a block's groups of sixteen multiply-adds,
/// sums in memory, takes longer than is saved.
template <bool together>
constexpr int vectors_beside = sum_lanes == 8 ? 2 : sum_vectors<together>;

template <bool together, int rows, class Sums>
DODONA_INLINE void multiply_rows(const Operands& o, std::int64_t columns, const Sums& sums) {
  side_by_side<vectors_beside<together>>(
      columns, [&](auto vectors, std::int64_t j) { sums.from_column(j).template add<rows, vectors, together>(o.from_lane(j)); });
}

template <bool together, class Sums>
void multiply_panel(Operands o, std::int64_t rows, std::int64_t columns, Sums sums, const Ahead& ahead) {
  const std::int64_t tiles = rows / sum_rows + 1, fetched = ahead.end - ahead.begin;
  const auto next = [&](std::int64_t count) {
    o.a += count * o.a_row;
    sums.next_rows(count);
  };
  std::int64_t tile = 0;
  for (; rows >= sum_rows; rows -= sum_rows, next(sum_rows), ++tile) {
    fetch(ahead, ahead.begin + fetched * tile / tiles, ahead.begin + fetched * (tile + 1) / tiles);
    multiply_rows<together, sum_rows>(o, columns, sums);
  }
  fetch(ahead, ahead.begin + fetched * tile / tiles, ahead.end);
  if constexpr (sum_rows > 4)
    if (rows & 4) multiply_rows<together, 4>(o, columns, sums), next(4);
  if (rows & 2) multiply_rows<together, 2>(o, columns, sums), next(2);
  if (rows & 1) multiply_rows<together, 1>(o, columns, sums);
}

// ---- one tile

/// Memory of a tile.
struct Scratch {
  float *a, *b, *sums, *row_scales, *column_scales;
  std::int64_t a_stride, sums_stride;
};
Scratch scratch_of(const PanelTile& tile) {
  Scratch s{};
  s.a_stride = ops::panel_a_stride(tile.product->k);
  s.sums_stride = ops::panel_sums_stride(tile.columns);
  s.a = tile.scratch;
  s.b = s.a + tile.rows * s.a_stride;
  s.sums = s.b + panel * s.a_stride;
  s.row_scales = s.sums + tile.rows * s.sums_stride;
  s.column_scales = s.row_scales + (tile.rows + 15) / 16 * 16;
  return s;
}

/// Elements [begin, begin + k) of `count` columns from `column` on to to[k][panel].
void unpack_columns(const PanelProduct& p, const Unpacker& b, std::int64_t batch, std::int64_t column, std::int64_t count,
                    std::int64_t begin, std::int64_t k, float* to) {
  for (std::int64_t v = 0; v < count; v += 16) {
    const std::int64_t first = column + v, few = ops::panel_few_columns;
    if (p.b.packed) {
      const std::byte* const of_panel = p.b.data + first / few * p.b.stride;
      const bool nans = of_panel[0] != std::byte{0};
      b.packed_columns[nans](of_panel + ops::panel_few_head + ops::panel_few_bytes(begin) + first % few * 4, ops::panel_few_line, k, to + v,
                             panel);
    } else {
      const std::byte* const codes = p.b.data + batch * p.b.batch_stride + first * p.b.stride + begin * b.bits / 8;
      b.columns({codes, p.b.stride, count - v < 16 ? count - v : 16}, k, to + v, panel);
    }
  }
}
/// Elements [begin, begin + k) of columns from `column` on.
Ahead ahead_of(const PanelProduct& p, const Unpacker& b, std::int64_t batch, std::int64_t column, std::int64_t begin, std::int64_t k) {
  Ahead ahead;
  for (int v = 0; v < 3 && column + 16 * v < p.n; ++v, ahead.columns += 16) {
    const std::int64_t first = column + 16 * v, few = ops::panel_few_columns;
    if (p.b.packed) {
      // A sixteenth of K stands for a column.
      ahead.lines = (k + 63) / 64, ahead.line_stride = ops::panel_few_line, ahead.stride = ahead.lines * ahead.line_stride;
      ahead.first[v] = p.b.data + first / few * p.b.stride + ops::panel_few_head + ops::panel_few_bytes(begin) + first % few * 4;
    } else {
      ahead.lines = (k * b.bits / 8 + 63) / 64, ahead.stride = p.b.stride;
      ahead.first[v] = p.b.data + batch * p.b.batch_stride + first * p.b.stride + begin * b.bits / 8;
    }
  }
  return ahead;
}

/// A part of K, the same of all rows and columns of a tile.
struct Part {
  std::int64_t begin, k;
};

/// What comes after a part of the columns before `j`: the next columns, the next part of the first ones, or the next tile.
Ahead next_columns(const PanelTile& tile, const Unpacker& b, const Part& part, std::int64_t j) {
  const PanelProduct& p = *tile.product;
  const std::int64_t next = part.begin + part.k, column = tile.column + j;
  if (j < tile.columns) return ahead_of(p, b, tile.batch, column, part.begin, part.k);
  if (next == p.k) return ahead_of(p, b, tile.batch, column, 0, p.k < part.k ? p.k : part.k);
  return ahead_of(p, b, tile.batch, tile.column, next, p.k - next < part.k ? p.k - next : part.k);
}

/// A part of K of all rows of a tile times `columns` columns from the tile's column j on. Columns are unpacked for a block of K at a time,
/// which a first-level cache holds.
void multiply_columns(const PanelTile& tile, const Scratch& s, const Unpacker& b, const Part& part, std::int64_t j, std::int64_t columns) {
  const PanelProduct& p = *tile.product;
  const SumsAt sums{s.sums + j, s.sums_stride};
  const std::int64_t block = p.block > 0 ? p.block : ops::panel_unpacked_k;
  Ahead ahead = next_columns(tile, b, part, j + columns);
  for (std::int64_t from = 0; from < part.k; from += block) {
    const std::int64_t k = part.k - from < block ? part.k - from : block, begin = part.begin + from;
    ahead.begin = panel * from / part.k, ahead.end = panel * (from + k) / part.k;
    unpack_columns(p, b, tile.batch, tile.column + j, columns, begin, k, s.b);
    const Operands operands{s.a + from, s.b, k, s.a_stride, {}, {}};
    if (p.block > 0) {
      take_scales(p.a_scales, tile.row, tile.rows, begin / p.block, s.row_scales);
      take_scales(p.b_scales, tile.column + j, columns, begin / p.block, s.column_scales);
      with_chains(tile.wide_vectors_are_split, [&](auto together) {
        multiply_panel<together>(operands, tile.rows, columns, BlockScaled{sums, s.row_scales, s.column_scales}, ahead);
      });
    } else {
      with_chains(tile.wide_vectors_are_split,
                  [&](auto together) { multiply_panel<together>(operands, tile.rows, columns, Unscaled{sums}, ahead); });
    }
  }
}

void multiply_tile(const PanelTile& tile) {
  const PanelProduct& p = *tile.product;
  const Scratch s = scratch_of(tile);
  const Unpacker a = unpacker(p.a.type), b = unpacker(p.b.type);
  const std::byte* const a_rows = p.a.data + tile.batch * p.a.batch_stride + tile.row * p.a.stride;
  for (std::int64_t i = 0; i < tile.rows * s.sums_stride; i += 16) f32x16::zero().store(s.sums + i);
  const std::int64_t part = p.block > 0 ? ops::panel_block_k / p.block * p.block : ops::panel_block_k;
  for (std::int64_t begin = 0; begin < p.k; begin += part) {
    const std::int64_t k = p.k - begin < part ? p.k - begin : part;
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const std::byte* const row = a_rows + i * p.a.stride + begin * a.bits / 8;
      for (std::int64_t line = 0; line < k * a.bits / 8; line += 64)
        __builtin_prefetch(row + tile.rows * p.a.stride + line);  // the next tile's
      a.row(row, k, b.left_out, s.a + i * s.a_stride);
    }
    for (std::int64_t j = 0; j < tile.columns; j += panel)
      multiply_columns(tile, s, b, {begin, k}, j, tile.columns - j < panel ? tile.columns - j : panel);
  }
  const ops::TileEpilogue epilogue = epilogue_of(p, tile.batch);
  for (std::int64_t i = 0; i < tile.rows; ++i)
    finish_row<FloatSums>(epilogue, tile.row + i, tile.column, tile.columns, s.sums + i * s.sums_stride);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void PanelTileKernel::run(const PanelTile& tile) {
  DODONA_TIER::multiply_tile(tile);
}
template void PanelTileKernel::run<tier::DODONA_TIER>(const PanelTile&);

}  // namespace dodona::ops
