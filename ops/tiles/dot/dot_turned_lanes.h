// Rows in lanes, times columns of bf16 whose elements lie side by side: a pair of a column goes to all lanes as it lies in memory, so that
// columns are neither turned nor widened. Included by *.simd.cpp only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ops/tiles/dot/dot.h"
#include "ops/tiles/panel/panel_core.h"
#include "ops/tiles/unpack/half.h"

namespace dodona::DODONA_TIER {

/// Whether rows lie in lanes for these columns: where sixteen lanes take so many registers that widened columns lie in memory, for rows too
/// few to be worth that, and columns long enough for what it takes to turn rows and sums.
inline bool rows_in_lanes(const ops::DotColumns& b, std::int64_t rows, std::int64_t k) {
  return sum_lanes == 8 && b.type == DType::bf16 && b.k_stride == 1 && rows >= 2 * sum_lanes && rows <= 48 && k >= 1024 && k % 2 == 0;
}

/// Vectors of rows in lanes that are multiplied together, most at first: body(vectors, row), a constant number of them from a row on.
/// Returns the first row that is left: less than two vectors of them.
template <class Body>
DODONA_INLINE std::int64_t each_rows_in_lanes(std::int64_t rows, const Body& body) {
  std::int64_t row = 0;
  for (; rows - row >= 3 * sum_lanes; row += 3 * sum_lanes) body(std::integral_constant<int, 3>(), row);
  if (rows - row >= 2 * sum_lanes) body(std::integral_constant<int, 2>(), row), row += 2 * sum_lanes;
  return row;
}
/// Columns that are multiplied with so many vectors: twelve sums are in registers.
template <int vectors>
inline constexpr int columns_beside = 12 / vectors;

/// What panel_sums takes: even k of pairs, or odd ones. Of rows, k after k.
template <int columns, int vectors, bool odd>
struct HalfOfPairs {
  const std::byte* column[columns];
  const float* rows;
  std::int64_t k;

  DODONA_INLINE SumLanes at(std::int64_t i, std::int64_t j) const {
    const SumPairs pair = SumPairs::splat(column[i] + 4 * j);
    return odd ? pair.odd() : pair.even();
  }
  DODONA_INLINE SumLanes lanes(std::int64_t j, std::int64_t v) const { return SumLanes::load(rows + (2 * j * vectors + v) * sum_lanes); }
};
/// What pair_sums takes. An even number of k.
template <int columns, int vectors>
struct PairsTimesLanes {
  const std::byte* column[columns];
  const float* rows;
  std::int64_t k;

  DODONA_INLINE auto evens(std::int64_t first, std::int64_t count) const { return half<false>(first, first, count); }
  DODONA_INLINE auto odds(std::int64_t first, std::int64_t count) const { return half<true>(first - 1, first, count); }

 private:
  template <bool odd>
  DODONA_INLINE auto half(std::int64_t pair, std::int64_t first, std::int64_t count) const {
    HalfOfPairs<columns, vectors, odd> h;
    DODONA_UNROLL(8)
    for (int i = 0; i < columns; ++i) h.column[i] = column[i] + 2 * pair;
    h.rows = rows + first * vectors * sum_lanes, h.k = count;
    return h;
  }
};

/// Rows to lanes: element k of row i to to[k][i].
template <class Format, int vectors>
void turn_rows(const ops::DotRows& rows, std::int64_t k, float* to) {
  constexpr std::int64_t width = vectors * sum_lanes;
  // Sixteen at a time, of which the last ones may lie above others.
  for (std::int64_t i : {std::int64_t{0}, width - 16}) Format::columns({rows.first + i * rows.stride, rows.stride, 16}, k, to + i, width);
}

/// Some columns times vectors of rows, which are `width` lanes from k to k: sums[column][width].
template <int vectors>
void add_columns(const ops::DotColumns& b, std::int64_t count, const float* rows, std::int64_t k, float* sums) {
  constexpr int columns = columns_beside<vectors>;
  PairsTimesLanes<columns, vectors> operands;
  // Columns that are not there repeat the last one.
  for (int j = 0; j < columns; ++j) operands.column[j] = b.first + 2 * (j < count ? j : count - 1) * b.column_stride;
  operands.rows = rows, operands.k = k;
  const SumsAt at{sums, vectors * sum_lanes};
  pair_sums<columns, vectors>(operands, at, at);
}

/// Sums of sixteen columns [16][width] as rows [width][16].
template <int vectors>
void turn_sums(const float* sums, float* to) {
  constexpr std::int64_t width = vectors * sum_lanes;
  for (std::int64_t first : {std::int64_t{0}, width - 16}) {
    f32x16 lines[16];
    DODONA_UNROLL(16)
    for (int i = 0; i < 16; ++i) lines[i] = f32x16::load(sums + i * width + first);
    transpose(lines);
    DODONA_UNROLL(16)
    for (int i = 0; i < 16; ++i) lines[i].store(to + (first + i) * 16);
  }
}

}  // namespace dodona::DODONA_TIER
