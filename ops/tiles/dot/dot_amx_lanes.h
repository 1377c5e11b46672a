// Products of dot.h by a matrix unit: all but its instructions, which are those of `Unit` (simd/amx_tiles.h). Included by *.simd.cpp, and
// by a test whose Unit is a model of them.
#pragma once

#include "ops/tiles/dot/dot_amx.h"
#include "ops/tiles/dot/dot_lanes.h"
#include "ops/tiles/epilogue_lanes.h"
#include "ops/tiles/tile_sums.h"

namespace dodona::DODONA_TIER {

static_assert(ops::dot_chunk == tile_chunk_bytes && ops::dot_job_panels * 16 == tile_sums_stride);

/// Bytes of a column: sixteen of them, more than memory answers at a time.
inline constexpr std::int64_t stream_ahead = 512;

/// A group of K of sixteen rows or columns: lines of each, or words of pairs.
DODONA_INLINE void pack_step(const DotGroup& group, bool in_lines, std::byte* to, PairMagnitudes& magnitudes) {
  const auto put = [&](int i, i32x16 word) __attribute__((always_inline)) {
    magnitudes.add(word);
    word.store(reinterpret_cast<std::int32_t*>(to) + 16 * i);
  };
  if (!in_lines) return group.each_pair(put);
  i32x16 columns[16];
  group.lines(columns);
  DODONA_UNROLL(16)
  for (int i = 0; i < 16; ++i) put(i, columns[i]);
}

inline void prepare_sixteen(const ops::DotJob& job, std::int64_t sixteen) {
  const std::int64_t row = 16 * sixteen, left = job.rows - row;
  const ops::DotColumns rows{job.a.first + row * job.a.stride, 1, job.a.stride / 2, DType::bf16};
  PairMagnitudes magnitudes;
  for (std::int64_t begin = 0; begin < job.k; begin += pair_group) {
    const std::int64_t chunk = begin / ops::dot_chunk_k, step = begin % ops::dot_chunk_k / pair_group;
    std::byte* const to = job.packed + (chunk * job.sixteens() + sixteen) * ops::dot_chunk + step * tile_step_bytes;
    pack_step({rows, left < 16 ? left : 16, begin, job.k}, job.b.k_stride != 1, to, magnitudes);
  }
  job.least[sixteen] = magnitudes.result().least;
}

/// Sixteen rows of a tile of sums += lines times words, as the unit would but that denormals count.
inline void add_by_vectors(const std::byte* lines, const std::byte* words, std::int64_t steps, float* sums) {
  for (std::int64_t s = 0; s < steps; ++s, lines += tile_step_bytes, words += tile_step_bytes)
    for (int row = 0; row < 16; ++row) {
      f32x16 even = f32x16::zero(), odd = f32x16::zero();
      for (int pair = 0; pair < 16; ++pair) {
        std::int32_t of_line;
        __builtin_memcpy(&of_line, lines + 64 * row + 4 * pair, sizeof of_line);
        const i32x16 left = i32x16::splat(of_line), right = load_pairs(words + 64 * pair);
        even = fma(even_of_pairs(left), even_of_pairs(right), even);
        odd = fma(odd_of_pairs(left), odd_of_pairs(right), odd);
      }
      float* const sum = sums + row * tile_sums_stride;
      (f32x16::load(sum) + (even + odd)).store(sum);
    }
}

/// A chunk of K of some panels: where it lies in memory, to be asked for while another one is multiplied.
DODONA_INLINE WeightsAhead columns_ahead(const ops::DotJob& job, std::int64_t column, std::int64_t columns, std::int64_t begin,
                                         std::int64_t turns) {
  if (begin >= job.k) begin = 0, column += columns;
  if (column >= job.n) return {};
  const std::int64_t k = job.k - begin < ops::dot_chunk_k ? job.k - begin : ops::dot_chunk_k;
  const std::int64_t there = job.n - column < columns ? job.n - column : columns;
  return ahead_of(job.b.from(column), there, begin, k, turns);
}

/// [begin, end) of K of some panels, in the order in which they lie in memory.
template <bool lines>
void pack_columns(const ops::DotJob& job, std::int64_t column, std::int64_t panels, std::int64_t begin, std::int64_t end,
                  ops::DotScratch& s, PairMagnitudes& magnitudes) {
  const std::int64_t steps = (end - begin + pair_group - 1) / pair_group;
  for (std::int64_t i = 0; i < steps * panels; ++i) {
    const std::int64_t p = lines ? i / steps : i % panels, step = lines ? i % steps : i / panels, first = column + 16 * p;
    const DotGroup group{job.b.from(first), job.n - first < 16 ? job.n - first : 16, begin + step * pair_group, job.k};
    if (job.columns == ops::DotColumnsAre::fetched_while_packing) group.fetch(stream_ahead);
    pack_step(group, lines, s.columns[p] + step * tile_step_bytes, magnitudes);
  }
}

/// A piece: all rows of a job times some panels of columns.
struct DotPiece {
  std::int64_t column, panels;
};

template <bool lines>
inline constexpr TileDots dot_tiles_of = lines ? TileDots::pair_lines : TileDots::pairs;

/// Sums of a piece, as add_by_vectors makes them, from chunks that are packed again.
template <bool lines>
void add_piece_by_vectors(const ops::DotJob& job, const DotPiece& piece, std::int64_t begin, ops::DotScratch& s) {
  for (; begin < job.k; begin += ops::dot_chunk_k) {
    const std::int64_t end = job.k - begin < ops::dot_chunk_k ? job.k : begin + ops::dot_chunk_k;
    PairMagnitudes magnitudes;
    pack_columns<lines>(job, piece.column, piece.panels, begin, end, s, magnitudes);
    for (std::int64_t i = 0; i < job.sixteens(); ++i)
      for (std::int64_t p = 0; p < piece.panels; ++p) {
        const std::byte *const of_rows = job.packed + (begin / ops::dot_chunk_k * job.sixteens() + i) * ops::dot_chunk, *const of_columns =
                                                                                                                            s.columns[p];
        add_by_vectors(lines ? of_columns : of_rows, lines ? of_rows : of_columns, (end - begin + pair_group - 1) / pair_group,
                       s.sums + 16 * (i * tile_sums_stride + p));
      }
  }
}

/// All of K of at most 64 rows and a panel: sums stay in tiles, and the next steps' columns are packed while this one is multiplied, so
/// that memory is asked evenly. False where there may have been denormals.
template <class Unit, bool lines>
bool add_stream(const ops::DotJob& job, const DotPiece& piece, std::int32_t least_of_rows, ops::DotScratch& s) {
  constexpr std::int64_t together = 2;
  constexpr TileDots dots = dot_tiles_of<lines>;
  const std::int64_t steps = (job.k + pair_group - 1) / pair_group;
  PairMagnitudes magnitudes;
  DotGroup group{job.b.from(piece.column), job.n - piece.column < 16 ? job.n - piece.column : 16, 0, job.k};
  const auto pack = [&](std::int64_t step) {
    const std::int64_t end = steps - step < together ? steps : step + together;
    for (; step < end; ++step, group.begin += pair_group) {
      group.fetch(stream_ahead);
      pack_step(group, lines, s.columns[0] + step % steps_of_chunk * tile_step_bytes, magnitudes);
    }
  };
  const auto next = [&](std::int64_t step) {
    if (step % together == 0 && step + together < steps) pack(step + together);
  };
  pack(0);
  const std::uint8_t* const column = reinterpret_cast<const std::uint8_t*>(s.columns[0]);
  const TileBlock block{reinterpret_cast<const std::uint8_t*>(job.packed), job.sixteens() * ops::dot_chunk, &column, 0, s.sums};
  switch (job.sixteens()) {
    case 1: add_tiles<Unit, dots, 1, 1>(block, steps, next); break;
    case 2: add_tiles<Unit, dots, 2, 1>(block, steps, next); break;
    case 3: add_tall_tiles<Unit, dots, 3>(block, steps, next); break;
    default: add_tall_tiles<Unit, dots, 4>(block, steps, next);
  }
  return sums_are_normal({least_of_rows, 0}, magnitudes.result());
}

/// Chunk after chunk of K of any rows and panels.
template <class Unit, bool lines>
void add_chunks(const ops::DotJob& job, const DotPiece& piece, std::int32_t least_of_rows, ops::DotScratch& s) {
  const std::uint8_t* columns[ops::dot_job_panels];
  for (std::int64_t p = 0; p < piece.panels; ++p) columns[p] = reinterpret_cast<const std::uint8_t*>(s.columns[p]);
  const std::byte* a = job.packed;
  for (std::int64_t begin = 0; begin < job.k; begin += ops::dot_chunk_k, a += job.sixteens() * ops::dot_chunk) {
    const std::int64_t end = job.k - begin < ops::dot_chunk_k ? job.k : begin + ops::dot_chunk_k;
    const std::int64_t steps = (end - begin + pair_group - 1) / pair_group;
    PairMagnitudes magnitudes;
    pack_columns<lines>(job, piece.column, piece.panels, begin, end, s, magnitudes);
    // Sums that were denormal once may be so again.
    if (!sums_are_normal({least_of_rows, 0}, magnitudes.result())) return add_piece_by_vectors<lines>(job, piece, begin, s);
    WeightsAhead ahead;
    if (job.columns == ops::DotColumnsAre::fetched_while_multiplying)
      ahead = columns_ahead(job, piece.column, 16 * piece.panels, end, turns_of_rows(job.rows, piece.panels, steps));
    add_rows<Unit, dot_tiles_of<lines>>({reinterpret_cast<const std::uint8_t*>(a), 0, columns, 0, s.sums}, job.rows, piece.panels, steps,
                                        [&](std::int64_t) { ahead.fetch(); });
  }
}

template <class Unit, bool lines>
void multiply_piece(const ops::DotJob& job, const DotPiece& piece, std::int32_t least_of_rows, ops::DotScratch& s) {
  const std::int64_t rows = 16 * job.sixteens();
  const auto clear = [&] {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t p = 0; p < piece.panels; ++p) f32x16::zero().store(s.sums + r * tile_sums_stride + 16 * p);
  };
  clear();
  if (job.columns != ops::DotColumnsAre::streams) {
    add_chunks<Unit, lines>(job, piece, least_of_rows, s);
  } else if (!add_stream<Unit, lines>(job, piece, least_of_rows, s)) {
    clear();
    add_piece_by_vectors<lines>(job, piece, 0, s);
  }
  if constexpr (lines)
    for (std::int64_t r = 0; r < rows; r += 16)
      for (std::int64_t p = 0; p < piece.panels; ++p) turn_back(s.sums + r * tile_sums_stride + 16 * p);
  ops::TileEpilogue epilogue;
  epilogue.out_type = job.out_type, epilogue.out = job.out, epilogue.out_stride = job.out_stride;
  const std::int64_t left = job.n - piece.column, most = 16 * piece.panels;
  for (std::int64_t r = 0; r < job.rows; ++r)
    finish_row<FloatSums>(epilogue, r, piece.column, left < most ? left : most, s.sums + r * tile_sums_stride);
}

template <class Unit>
struct DotByTiles {
  static void prepare(const ops::DotJob& job, std::int64_t sixteen) { prepare_sixteen(job, sixteen); }
  static void multiply(const ops::DotJob& job, std::int64_t first, std::int64_t last, ops::DotScratch& s) {
    const typename Unit::Session session(shapes_of_tile_sums);
    Magnitudes of_rows;
    for (std::int64_t i = 0; i < job.sixteens(); ++i) of_rows.join({job.least[i], 0});
    const std::int64_t all = (job.n + 15) / 16;
    for (std::int64_t piece = first; piece < last; ++piece) {
      const std::int64_t panel = piece * job.panels, panels = all - panel < job.panels ? all - panel : job.panels;
      if (job.b.k_stride == 1) {
        multiply_piece<Unit, true>(job, {16 * panel, panels}, of_rows.least, s);
      } else {
        multiply_piece<Unit, false>(job, {16 * panel, panels}, of_rows.least, s);
      }
    }
  }
};

}  // namespace dodona::DODONA_TIER
