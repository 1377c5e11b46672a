#include "ops/tiles/dot.h"

#include "ops/tiles/dot_lanes.h"
#include "ops/tiles/epilogue_lanes.h"
#include "ops/tiles/panel_core.h"
#include "ops/tiles/unpack/half.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::DotTile;

constexpr std::int64_t columns = ops::dot_columns_together;

/// With the format of a type of two bytes or four.
template <class Body>
DODONA_INLINE void with_format(DType type, const Body& body) {
  switch (type) {
    case DType::bf16: return body(Bf16Unpack{});
    case DType::f16: return body(F16Unpack{});
    default: return body(F32Unpack{});
  }
}

void widen(const ops::DotRows& rows, std::int64_t count, std::int64_t k, float* to) {
  const std::int64_t stride = ops::dot_row_stride(k);
  with_format(rows.type, [&](auto format) {
    for (std::int64_t i = 0; i < count; ++i, to += stride) {
      unpack_row<decltype(format)>(rows.first + i * rows.stride, k, 1.0f, to);
      for (std::int64_t rest = k; rest < stride; rest += 16) f32x16::zero().store_partial(to + rest, stride - rest);
    }
  });
}

/// Sums of a tile from column j on, a row of `stride` floats for each row.
void finish(const DotTile& tile, std::int64_t j, std::int64_t count, const float* sums, std::int64_t stride) {
  ops::TileEpilogue epilogue;
  epilogue.out_type = tile.out_type, epilogue.out = tile.out, epilogue.out_stride = tile.out_stride;
  for (std::int64_t i = 0; i < tile.rows; ++i) finish_row<FloatSums>(epilogue, i, j, count, sums + i * stride);
}

// ---- few rows and columns of bf16, which come from memory: in registers from there to the sums

constexpr std::int64_t few_rows = many_sums_fit ? 6 : 2;

template <int rows>
void multiply_few(const DotTile& tile, float* sums) {
  constexpr std::int64_t ahead = 512;
  const std::int64_t stride = ops::dot_row_stride(tile.k);
  for (std::int64_t j = 0; j < tile.columns; j += 16) {
    DotGroup group{tile.b.from(j), tile.columns - j < 16 ? tile.columns - j : 16, 0, tile.k};
    f32x16 sum[rows];
    DODONA_UNROLL(8)
    for (int i = 0; i < rows; ++i) sum[i] = f32x16::zero();
    for (; group.begin < tile.k; group.begin += pair_group) {
      group.fetch(ahead);
      f32x16 even[rows], odd[rows];
      DODONA_UNROLL(8)
      for (int i = 0; i < rows; ++i) even[i] = odd[i] = f32x16::zero();
      group.each_pair([&](int pair, i32x16 word) __attribute__((always_inline)) {
        const f32x16 first = even_of_pairs(word), second = odd_of_pairs(word);
        DODONA_UNROLL(8)
        for (int i = 0; i < rows; ++i) {
          const float* const a = tile.a + i * stride + group.begin + 2 * pair;
          even[i] = fma(f32x16::splat(a[0]), first, even[i]);
          odd[i] = fma(f32x16::splat(a[1]), second, odd[i]);
        }
      });
      DODONA_UNROLL(8)
      for (int i = 0; i < rows; ++i) sum[i] = sum[i] + (even[i] + odd[i]);
    }
    DODONA_UNROLL(8)
    for (int i = 0; i < rows; ++i) sum[i].store(sums + 16 * i);
    finish(tile, j, group.count, sums, 16);
  }
}

template <int rows>
void multiply_few_rows(const DotTile& tile) {
  if constexpr (rows > 1)
    if (tile.rows < rows) return multiply_few_rows<rows - 1>(tile);
  multiply_few<rows>(tile, tile.scratch);
}

// ---- many rows: columns are widened a block of K at a time, for all of them

/// Some columns of a tile and a block of K.
struct Block {
  std::int64_t column, columns, begin, k;
};

/// Of rows whose elements lie side by side.
template <class Format>
void widen_rows(const std::byte* from, std::int64_t row_bytes, const Block& block, float* to) {
  const std::int64_t whole = block.columns / 16 * 16;
  for (std::int64_t i = 0; i < block.k; ++i, from += row_bytes, to += columns) {
    for (std::int64_t j = 0; j < whole; j += 16) Format::load(from + j * (Format::bits / 8)).store(to + j);
    if (whole < block.columns) Format::load_partial(from + whole * (Format::bits / 8), block.columns - whole).store(to + whole);
  }
}

/// To to[k][columns].
void widen_columns(const DotTile& tile, const Block& block, float* to) {
  with_format(tile.b.type, [&](auto format) {
    using Format = decltype(format);
    constexpr std::int64_t size = Format::bits / 8;
    const std::byte* const first = tile.b.from(block.column).first + block.begin * tile.b.k_stride * size;
    if (tile.b.k_stride != 1) return widen_rows<Format>(first, tile.b.k_stride * size, block, to);
    const std::int64_t column_bytes = tile.b.column_stride * size;
    for (std::int64_t j = 0; j < block.columns; j += 16)
      Format::columns({first + j * column_bytes, column_bytes, block.columns - j < 16 ? block.columns - j : 16}, block.k, to + j, columns);
  });
}

/// Blocks come along K to the end of a part of it, then of the next columns, then of the next part.
Block block_at(const DotTile& tile, std::int64_t column, std::int64_t begin) {
  const std::int64_t part_end = (begin / ops::dot_part_k + 1) * ops::dot_part_k, end = tile.k < part_end ? tile.k : part_end;
  return {column, tile.columns - column < columns ? tile.columns - column : columns, begin,
          end - begin < ops::dot_block_k ? end - begin : ops::dot_block_k};
}
/// Behind the last one: no columns.
Block after(const DotTile& tile, const Block& block) {
  const std::int64_t begin = block.begin + block.k, part = block.begin / ops::dot_part_k * ops::dot_part_k;
  if (begin < tile.k && begin < part + ops::dot_part_k) return block_at(tile, block.column, begin);
  if (block.column + block.columns < tile.columns) return block_at(tile, block.column + block.columns, part);
  return begin < tile.k ? block_at(tile, 0, begin) : Block{};
}

/// The next block's columns, to be asked for while one is multiplied.
WeightsAhead columns_ahead(const DotTile& tile, const Block& block, std::int64_t turns) {
  const Block next = after(tile, block);
  if (next.columns == 0) return {};
  return ahead_of(tile.b.from(next.column), next.columns, next.begin, next.k, turns);
}

using Operands = PanelOperands<std::int64_t, Known<1>, Known<columns>>;

template <int rows>
void add_rows(const Operands& o, std::int64_t count, const SumsAt& sums) {
  side_by_side<sum_vectors>(count, [&](auto vectors, std::int64_t j) {
    const SumsAt from{sums.c + j, sums.c_row};
    pair_sums<rows, vectors>(o.from_lane(j), from, from);
  });
}

/// All rows times a block, whose columns are widened at b.
void add_block(const DotTile& tile, const Block& block, const float* b, SumsAt sums) {
  const std::int64_t stride = ops::dot_row_stride(tile.k);
  WeightsAhead ahead = columns_ahead(tile, block, (tile.rows + sum_rows - 1) / sum_rows);
  Operands o{tile.a + block.begin, b, block.k, stride, {}, {}};
  const auto next = [&](std::int64_t count) {
    o.a += count * stride;
    sums.c += count * sums.c_row;
  };
  std::int64_t rows = tile.rows;
  for (; rows >= sum_rows; rows -= sum_rows, next(sum_rows)) {
    ahead.fetch();
    add_rows<sum_rows>(o, block.columns, sums);
  }
  ahead.fetch();
  if constexpr (sum_rows > 4)
    if (rows & 4) add_rows<4>(o, block.columns, sums), next(4);
  if (rows & 2) add_rows<2>(o, block.columns, sums), next(2);
  if (rows & 1) add_rows<1>(o, block.columns, sums);
}

void multiply_many_rows(const DotTile& tile) {
  const std::int64_t stride = (tile.columns + 15) / 16 * 16;
  float *const sums = tile.scratch, *const b = sums + tile.rows * stride;
  for (std::int64_t i = 0; i < tile.rows * stride; i += 16) f32x16::zero().store(sums + i);
  for (Block block = tile.k == 0 ? Block{} : block_at(tile, 0, 0); block.columns != 0; block = after(tile, block)) {
    widen_columns(tile, block, b);
    add_block(tile, block, b, {sums + block.column, stride});
  }
  finish(tile, 0, tile.columns, sums, stride);
}

void multiply_tile(const DotTile& tile) {
  if (tile.b.type == DType::bf16 && tile.rows <= few_rows) return multiply_few_rows<few_rows>(tile);
  multiply_many_rows(tile);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void DotWidenKernel::run(const DotRows& rows, std::int64_t count, std::int64_t k, float* to) {
  DODONA_TIER::widen(rows, count, k, to);
}
template void DotWidenKernel::run<tier::DODONA_TIER>(const DotRows&, std::int64_t, std::int64_t, float*);

template <class Tier>
void DotTileKernel::run(const DotTile& tile) {
  DODONA_TIER::multiply_tile(tile);
}
template void DotTileKernel::run<tier::DODONA_TIER>(const DotTile&);

}  // namespace dodona::ops
