#include "ops/tiles/dot/dot.h"

#include "ops/tiles/dot/dot_lanes.h"
#include "ops/tiles/dot/dot_turned_lanes.h"
#include "ops/tiles/epilogue_lanes.h"
#include "ops/tiles/panel/panel_core.h"
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

void widen(ops::DotRows rows, const ops::DotColumns& b, std::int64_t count, std::int64_t k, float* to) {
  const std::int64_t stride = ops::dot_row_stride(k);
  with_format(rows.type, [&](auto format) {
    if (rows_in_lanes(b, count, k)) {
      const std::int64_t done = each_rows_in_lanes(count, [&](auto vectors, std::int64_t row) {
        turn_rows<decltype(format), vectors>({rows.first + row * rows.stride, rows.stride, rows.type}, k, to + row * stride);
      });
      rows.first += done * rows.stride, count -= done, to += done * stride;
    }
    for (std::int64_t i = 0; i < count; ++i, to += stride) {
      unpack_row<decltype(format)>(rows.first + i * rows.stride, k, 1.0f, to);
      for (std::int64_t rest = k; rest < stride; rest += 16) f32x16::zero().store_partial(to + rest, stride - rest);
    }
  });
}

/// Sums of some rows of a tile from column j on, `stride` floats from row to row.
void finish(const DotTile& tile, std::int64_t row, std::int64_t rows, std::int64_t j, std::int64_t count, const float* sums,
            std::int64_t stride) {
  for (std::int64_t i = 0; i < rows; ++i)
    finish_row<FloatSums>(*tile.epilogue, tile.row + row + i, tile.column + j, count, sums + i * stride);
}

// ---- columns of bf16 that come from memory

/// Asks for what is multiplied next. Processors of narrow vectors do best with short columns in the order of memory and others near by.
DODONA_INLINE void fetch_next(const DotTile& tile, const DotGroup& group) {
  const bool narrow = sum_lanes == 8 || tile.wide_vectors_are_split;
  group.fetch(narrow ? 256 : 512, narrow);
}

/// Groups of `at_once` columns of a tile as they lie in memory, column by column, or where rows' elements lie side by side a part of K of
/// them all after the other: body(group, end, j) for those of column j from the group on to the end of K that is given.
template <class Body>
DODONA_INLINE void each_run_of_groups(const DotTile& tile, std::int64_t at_once, const Body& body) {
  const std::int64_t run = tile.b.k_stride == 1 ? tile.k : ops::dot_part_k;
  for (std::int64_t begin = 0; begin < tile.k; begin += run)
    for (std::int64_t j = 0; j < tile.columns; j += at_once)
      body(DotGroup{tile.b.from(j), tile.columns - j < at_once ? tile.columns - j : at_once, begin, tile.k},
           tile.k - begin < run ? tile.k : begin + run, j);
}

/// Rows from a group of K on, `stride` floats apart, and where their sums are.
struct GroupRows {
  const float* a;
  std::int64_t stride, rows;
  SumsAt sums;

  DODONA_INLINE GroupRows from(std::int64_t k, std::int64_t column) const { return {a + k, stride, rows, {sums.c + column, sums.c_row}}; }
};

/// The rows of a tile, whose sums lie in its scratch, each from +0 on.
GroupRows rows_from_zero(const DotTile& tile) {
  const std::int64_t stride = ops::dot_sums_stride(tile.columns);
  for (std::int64_t i = 0; i < tile.rows * stride; i += 16) f32x16::zero().store(tile.scratch + i);
  return {tile.a, ops::dot_row_stride(tile.k), tile.rows, {tile.scratch, stride}};
}

// ---- few rows: in registers from there to the sums

constexpr std::int64_t few_rows = many_sums_fit ? 6 : 2;

template <int rows>
void add_few(const DotTile& tile, DotGroup group, std::int64_t end, GroupRows r) {
  f32x16 sum[rows];
  DODONA_UNROLL(8)
  for (int i = 0; i < rows; ++i) sum[i] = f32x16::load(r.sums.c + i * r.sums.c_row);
  for (; group.begin < end; group.begin += pair_group, r.a += pair_group) {
    fetch_next(tile, group);
    f32x16 even[rows], odd[rows];
    DODONA_UNROLL(8)
    for (int i = 0; i < rows; ++i) even[i] = odd[i] = f32x16::zero();
    group.each_pair([&](int pair, i32x16 word) __attribute__((always_inline)) {
      const f32x16 first = even_of_pairs(word), second = odd_of_pairs(word);
      DODONA_UNROLL(8)
      for (int i = 0; i < rows; ++i) {
        const float* const a = r.a + i * r.stride + 2 * pair;
        even[i] = fma(f32x16::splat(a[0]), first, even[i]);
        odd[i] = fma(f32x16::splat(a[1]), second, odd[i]);
      }
    });
    DODONA_UNROLL(8)
    for (int i = 0; i < rows; ++i) sum[i] = sum[i] + (even[i] + odd[i]);
  }
  DODONA_UNROLL(8)
  for (int i = 0; i < rows; ++i) sum[i].store(r.sums.c + i * r.sums.c_row);
}

template <int rows>
void multiply_few_rows(const DotTile& tile) {
  if constexpr (rows > 1)
    if (tile.rows < rows) return multiply_few_rows<rows - 1>(tile);
  const GroupRows all = rows_from_zero(tile);
  each_run_of_groups(tile, 16, [&](const DotGroup& group, std::int64_t end, std::int64_t j) {
    add_few<rows>(tile, group, end, all.from(group.begin, j));
  });
  finish(tile, 0, tile.rows, 0, tile.columns, all.sums.c, all.sums.c_row);
}

// ---- some rows: words of pairs of columns lie in a first-level cache, and a few rows at a time widen them

/// The most that are multiplied at a time.
constexpr std::int64_t rows_of_words = many_sums_fit ? 8 : 6;

using PairWords = std::int32_t[pair_group / 2][16];

/// Words of pairs of a group's columns. Eight columns a tile: with sixteen, lines of columns that lie a power of two apart push each other
/// out of a first-level cache.
DODONA_INLINE void turn(const DotGroup& group, PairWords& words) {
#if DODONA_TIER_v3
  if (group.along_k() && group.count == 8 && group.k - group.begin >= pair_group)
    return each_word_of_eight(
        group.b.first + 2 * group.begin,
        2 * group.b.column_stride, [&](int pair, lanes::i32x8 word) __attribute__((always_inline)) { word.store(words[pair]); });
#endif
  group.each_pair([&](int pair, i32x16 word) __attribute__((always_inline)) { word.store(words[pair]); });
}

/// What is done beside the multiplications of a group, a part before each four pairs: nothing, or the next group is turned. Processors that
/// multiply in two units shuffle in others.
struct Nothing {
  DODONA_INLINE void operator()(int) const {}
};
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
struct TurnNext {
  const DotGroup& group;
  PairWords& words;

  DODONA_INLINE void operator()(int four) const {
    group.each_pair_of_four(
        four, [&](int pair, i32x16 word) __attribute__((always_inline)) { word.store(words[pair]); });
  }
};
#endif

/// sums += a times a group's first `count` columns.
template <int rows, class Beside>
DODONA_INLINE void add_words(const GroupRows& r, const PairWords& words, std::int64_t count, const Beside& beside) {
  for (std::int64_t lane = 0; lane < count; lane += sum_lanes) {
    SumLanes even[rows], odd[rows];
    DODONA_UNROLL(8)
    for (int i = 0; i < rows; ++i) even[i] = odd[i] = SumLanes::zero();
    for (int four = 0; four < pair_group / 8; ++four) {
      beside(four);
      DODONA_UNROLL(4)
      for (int pair = 4 * four; pair < 4 * four + 4; ++pair) {
        const SumPairs word = SumPairs::load(words[pair] + lane);
        const SumLanes first = word.even(), second = word.odd();
        DODONA_UNROLL(8)
        for (int i = 0; i < rows; ++i) {
          even[i] = fma(SumLanes::splat(r.a[i * r.stride + 2 * pair]), first, even[i]);
          odd[i] = fma(SumLanes::splat(r.a[i * r.stride + 2 * pair + 1]), second, odd[i]);
        }
      }
    }
    float* const sums = r.sums.c + lane;
    DODONA_UNROLL(8)
    for (int i = 0; i < rows; ++i) (SumLanes::load(sums + i * r.sums.c_row) + (even[i] + odd[i])).store(sums + i * r.sums.c_row);
  }
}
template <class Beside>
DODONA_INLINE void add_some_words(std::int64_t rows, const GroupRows& r, const PairWords& words, std::int64_t count, const Beside& beside) {
  switch (rows) {
    case 1: return add_words<1>(r, words, count, beside);
    case 2: return add_words<2>(r, words, count, beside);
    case 3: return add_words<3>(r, words, count, beside);
    case 4: return add_words<4>(r, words, count, beside);
    case 5: return add_words<5>(r, words, count, beside);
    case 6: return add_words<6>(r, words, count, beside);
    case 7: return add_words<7>(r, words, count, beside);
    default: return add_words<8>(r, words, count, beside);
  }
}

/// All rows, about as many at a time; `beside` the first of them.
template <class Beside>
DODONA_INLINE void add_words_of_rows(GroupRows r, const PairWords& words, std::int64_t count, const Beside& beside) {
  const std::int64_t turns = (r.rows + rows_of_words - 1) / rows_of_words;
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    const std::int64_t now = (r.rows + turns - turn - 1) / (turns - turn);
    if (turn == 0) {
      add_some_words(now, r, words, count, beside);
    } else {
      add_some_words(now, r, words, count, Nothing{});
    }
    r.rows -= now, r.a += now * r.stride, r.sums.c += now * r.sums.c_row;
  }
}

/// Columns that are worked off at a time.
std::int64_t columns_of_words(const ops::DotColumns& b) {
  return b.k_stride == 1 ? sum_lanes : 16;
}

/// A group and those behind it; what comes next is asked for where `fetching`.
void add_groups(const DotTile& tile, DotGroup group, std::int64_t end, GroupRows r, bool fetching) {
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
  alignas(64) PairWords words[2];
  int now = 0;
  turn(group, words[now]);
  for (; group.begin < end; r.a += pair_group, now = 1 - now) {
    if (fetching) fetch_next(tile, group);
    const std::int64_t count = group.count;
    group.begin += pair_group;
    if (group.begin < end && group.whole()) {
      add_words_of_rows(r, words[now], count, TurnNext{group, words[1 - now]});
      continue;
    }
    add_words_of_rows(r, words[now], count, Nothing{});
    if (group.begin < end) turn(group, words[1 - now]);
  }
#else
  alignas(64) PairWords words;
  for (; group.begin < end; group.begin += pair_group, r.a += pair_group) {
    if (fetching) fetch_next(tile, group);
    turn(group, words);
    add_words_of_rows(r, words, group.count, Nothing{});
  }
#endif
}

void multiply_some_rows(const DotTile& tile) {
  const GroupRows all = rows_from_zero(tile);
  each_run_of_groups(tile, columns_of_words(tile.b), [&](const DotGroup& group, std::int64_t end, std::int64_t j) {
    add_groups(tile, group, end, all.from(group.begin, j), true);
  });
  finish(tile, 0, tile.rows, 0, tile.columns, all.sums.c, all.sums.c_row);
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

/// Elements of K that are worked off together: columns that are not widened take less of a first-level cache.
std::int64_t block_k(const DotTile& tile) {
  return rows_in_lanes(tile.b, tile.rows, tile.k) ? 2 * ops::dot_block_k : ops::dot_block_k;
}
/// Blocks come along K to the end of a part of it, then of the next columns, then of the next part.
Block block_at(const DotTile& tile, std::int64_t column, std::int64_t begin) {
  const std::int64_t part_end = (begin / ops::dot_part_k + 1) * ops::dot_part_k, end = tile.k < part_end ? tile.k : part_end;
  return {column, tile.columns - column < columns ? tile.columns - column : columns, begin,
          end - begin < block_k(tile) ? end - begin : block_k(tile)};
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

template <bool together, int rows>
void add_rows(const Operands& o, std::int64_t count, const SumsAt& sums) {
  side_by_side<sum_vectors<together>>(count, [&](auto vectors, std::int64_t j) {
    const SumsAt from{sums.c + j, sums.c_row};
    pair_sums<rows, vectors, together>(o.from_lane(j), from, from);
  });
}

/// All rows times a block, whose columns are widened at b.
template <bool together>
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
    add_rows<together, sum_rows>(o, block.columns, sums);
  }
  ahead.fetch();
  if constexpr (sum_rows > 4)
    if (rows & 4) add_rows<together, 4>(o, block.columns, sums), next(4);
  if (rows & 2) add_rows<together, 2>(o, block.columns, sums), next(2);
  if (rows & 1) add_rows<together, 1>(o, block.columns, sums);
}

void multiply_many_rows(const DotTile& tile) {
  const std::int64_t stride = ops::dot_sums_stride(tile.columns);
  float *const sums = tile.scratch, *const b = sums + tile.rows * stride;
  for (std::int64_t i = 0; i < tile.rows * stride; i += 16) f32x16::zero().store(sums + i);
  for (Block block = tile.k == 0 ? Block{} : block_at(tile, 0, 0); block.columns != 0; block = after(tile, block)) {
    widen_columns(tile, block, b);
    with_chains(tile.wide_vectors_are_split, [&](auto together) { add_block<together>(tile, block, b, {sums + block.column, stride}); });
  }
  finish(tile, 0, tile.rows, 0, tile.columns, sums, stride);
}

// ---- many rows of bf16 whose columns' elements lie side by side: in lanes (dot_turned_lanes.h), and the last few times words

void add_block_to_lanes(const DotTile& tile, const Block& block, float* sums, std::int64_t stride) {
  const std::int64_t a_stride = ops::dot_row_stride(tile.k);
  const ops::DotColumns b{tile.b.from(block.column).first + 2 * block.begin, 1, tile.b.column_stride, tile.b.type};
  WeightsAhead ahead = columns_ahead(tile, block, tile.rows / (2 * sum_lanes) * (columns / columns_beside<3>));
  const std::int64_t done = each_rows_in_lanes(tile.rows, [&](auto vectors, std::int64_t row) {
    constexpr std::int64_t width = vectors * sum_lanes, at_once = columns_beside<vectors>;
    const float* const a = tile.a + row * a_stride + block.begin * width;
    for (std::int64_t j = 0; j < block.columns; j += at_once) {
      ahead.fetch();
      add_columns<vectors>(b.from(j), block.columns - j, a, block.k, sums + row * stride + (block.column + j) * width);
    }
  });
  if (done == tile.rows) return;
  const GroupRows rest{tile.a + done * a_stride, a_stride, tile.rows - done, {sums + done * stride, stride}};
  const std::int64_t at_once = columns_of_words(tile.b), end = block.begin + block.k;
  for (std::int64_t j = block.column; j < block.column + block.columns; j += at_once) {
    const std::int64_t left = block.column + block.columns - j;
    add_groups(tile, {tile.b.from(j), left < at_once ? left : at_once, block.begin, tile.k}, end, rest.from(block.begin, j), false);
  }
}

void multiply_in_lanes(const DotTile& tile) {
  const std::int64_t stride = ops::dot_sums_stride(tile.columns);
  float* const sums = tile.scratch;
  for (std::int64_t i = 0; i < tile.rows * stride; i += 16) f32x16::zero().store(sums + i);
  for (Block block = block_at(tile, 0, 0); block.columns != 0; block = after(tile, block)) add_block_to_lanes(tile, block, sums, stride);
  const std::int64_t done = each_rows_in_lanes(tile.rows, [&](auto vectors, std::int64_t row) {
    constexpr std::int64_t width = vectors * sum_lanes;
    alignas(64) float turned[width * 16];
    for (std::int64_t j = 0; j < tile.columns; j += 16) {
      turn_sums<vectors>(sums + row * stride + j * width, turned);
      finish(tile, row, width, j, tile.columns - j < 16 ? tile.columns - j : 16, turned, 16);
    }
  });
  finish(tile, done, tile.rows - done, 0, tile.columns, sums + done * stride, stride);
}

/// The most rows of a tile that words of pairs serve. More are better off with columns that are widened once: where registers are few,
/// where multiply-adds leave no time for it, and where columns come from memory as parts of rows, of which sixteen take half a line.
std::int64_t most_rows_of_words(const DotTile& tile) {
  if (tile.b.type != DType::bf16 || (sum_lanes == 16 && !many_sums_fit)) return 0;
  if (!lie_near(tile.b, tile.k)) return 6;
  return sum_lanes == 8 ? 16 : tile.wide_vectors_are_split ? ops::dot_tile_rows : rows_of_words;
}

void multiply_tile(const DotTile& tile) {
  if (rows_in_lanes(tile.b, tile.rows, tile.k)) return multiply_in_lanes(tile);
  if (tile.b.type == DType::bf16 && tile.rows <= few_rows) return multiply_few_rows<few_rows>(tile);
  if (tile.rows <= most_rows_of_words(tile)) return multiply_some_rows(tile);
  multiply_many_rows(tile);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void DotWidenKernel::run(const DotRows& rows, const DotColumns& b, std::int64_t count, std::int64_t k, float* to) {
  DODONA_TIER::widen(rows, b, count, k, to);
}
template void DotWidenKernel::run<tier::DODONA_TIER>(const DotRows&, const DotColumns&, std::int64_t, std::int64_t, float*);

template <class Tier>
void DotTileKernel::run(const DotTile& tile) {
  DODONA_TIER::multiply_tile(tile);
}
template void DotTileKernel::run<tier::DODONA_TIER>(const DotTile&);

}  // namespace dodona::ops
