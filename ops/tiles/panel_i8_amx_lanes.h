// Products by a matrix unit: all but its instructions, which are those of `Unit` (simd/amx_tiles.h). Included by *.simd.cpp, and by a test
// whose Unit is a model of them.
#pragma once

#include <bit>
#include <cstdint>

#include "ops/tiles/panel_i8_amx.h"
#include "ops/tiles/panel_i8_lanes.h"
#include "ops/tiles/tile_sums.h"
#include "ops/tiles/unpack/nvfp4_bf16.h"
#include "simd/amx.h"

namespace dodona::DODONA_TIER {

/// Whether packed weights are what they decode to.
template <class Unpack>
inline constexpr bool packed_as_decoded = false;
template <>
inline constexpr bool packed_as_decoded<Int8Unpack> = true;

/// Whether raw weights are the left operand: lines of 64 k of a column, which most formats have in memory or nearly so, where panels would
/// have to be transposed. Such a format has `lines(weights, panel, begin, end, to, stride)`, which makes signed bytes of steps
/// [begin, end) of panels_together panels, 64 for each of sixteen columns, step by step, panels `stride` bytes apart; and
/// `line_word(place)`, which of a row's words of four k stands for those at a place of a line.
template <class Unpack>
inline constexpr bool has_lines = requires(std::uint8_t* to) {
  Unpack::lines(ops::I8Weights{}, 0, 0, 0, to, 0);
};
template <class Unpack>
DODONA_INLINE bool takes_lines(const ops::I8Weights& w) {
  return has_lines<Unpack> && w.packed == nullptr;
}

inline constexpr std::int64_t whole_step_bytes = ops::i8_amx_together * ops::i8_step;
/// Of sixteen k as bf16: of sixteen rows, and of sixteen columns.
inline constexpr std::int64_t block_bytes = 512;

// ---- rows of A

/// The right operand: words of sixteen rows beside each other. Lines are signed: nothing is to be corrected.
template <class Unpack>
void prepare_matrix_words(const std::uint8_t* codes, std::int64_t k, const ops::I8AmxRows& to, std::int64_t row) {
  const std::int64_t steps = ops::i8_steps(k), together = ops::i8_amx_together;
  for (std::int64_t s = 0; s < steps; s += 2) {
    const f32x16_pair pair = codes != nullptr ? Unpack::row(codes, s * ops::i8_step, k) : f32x16_pair{f32x16::zero(), f32x16::zero()};
    std::int32_t words[32];
    as_i32(pair.first).store(words);
    as_i32(pair.second).store(words + 16);
    for (std::int64_t i = 0; i < 2 && s + i < steps; ++i) {
      auto* const out = reinterpret_cast<std::int32_t*>(to.at(row / together, (s + i) * whole_step_bytes)) + row % together;
      DODONA_UNROLL(16)
      for (int place = 0; place < 16; ++place) out[place * together] = words[16 * i + Unpack::line_word(place)];
    }
  }
  to.corrections[row] = 0;
}

template <class Unpack>
void prepare_matrix_row(const std::uint8_t* codes, std::int64_t k, const ops::I8AmxRows& to, std::int64_t row) {
  const std::int64_t steps = ops::i8_steps(k), together = ops::i8_amx_together;
  const i32x16 ones = i32x16::splat(0x01010101);
  i32x16 whole = i32x16::zero();
  for (std::int64_t s = 0; s < steps; s += 2) {
    const f32x16_pair pair = codes != nullptr ? Unpack::row(codes, s * ops::i8_step, k) : f32x16_pair{f32x16::zero(), f32x16::zero()};
    const auto out = [&](std::int64_t step) {
      return reinterpret_cast<std::int32_t*>(to.at(row / together, step * whole_step_bytes) + row % together * ops::i8_step);
    };
    as_i32(pair.first).store(out(s));
    whole = dpbusd_small(whole, ones, as_i32(pair.first));
    if (s + 1 == steps) break;
    as_i32(pair.second).store(out(s + 1));
    whole = dpbusd_small(whole, ones, as_i32(pair.second));
  }
  std::int32_t sums[16], all = 0;
  whole.store(sums);
  for (const std::int32_t sum : sums) all += sum;
  to.corrections[row] = -Unpack::offset * all;
}

template <class Unpack>
void prepare_whole_row(const ops::I8AmxJob& job, const std::uint8_t* codes, std::int64_t row) {
  if constexpr (has_lines<Unpack>)
    if (takes_lines<Unpack>(*job.weights)) return prepare_matrix_words<Unpack>(codes, job.weights->k, job.a, row);
  prepare_matrix_row<Unpack>(codes, job.weights->k, job.a, row);
}

/// An e4m3 code's value: its fields are fp32's but for the bias. The table of all values would be a weak symbol of every tier.
DODONA_INLINE float scale_of(std::uint8_t code) {
  const std::uint32_t sign = (code & 0x80u) << 24, magnitude = code & 0x7Fu;
  const float value = magnitude == 0x7Fu ? std::bit_cast<float>(0x7FC00000u) : std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
}

/// NVFP4: nothing is to be corrected.
DODONA_INLINE void prepare_scaled_row(const ops::I8AmxRow& from, std::int64_t k, const ops::I8AmxRows& to, std::int64_t row) {
  const std::int64_t blocks = ops::i8_steps(k) * 4, there = from.codes != nullptr ? k / ops::i8_block : 0, together = ops::i8_amx_together;
  for (std::int64_t block = 0; block < blocks; ++block) {
    std::uint8_t* const out = to.at(row / together, block * block_bytes) + row % together * 32;
    if (block < there) {
      const float scale = scale_of(from.scales[block / 4 * 512 + block % 4]);
      Nvfp4Bf16Unpack::row_block(from.codes + 8 * block, scale, out);
    } else {
      store_bf16(f32x16::zero(), out);
    }
  }
  to.corrections[row] = 0;
}

// ---- whole sums

inline constexpr std::int64_t amx_sums_stride = ops::i8_amx_columns, chunk_of_whole = ops::i8_amx_chunk / whole_step_bytes;
static_assert(whole_step_bytes == tile_step_bytes && ops::i8_amx_chunk == tile_chunk_bytes && amx_sums_stride == tile_sums_stride);
template <bool lines>
inline constexpr TileDots whole_dots = lines ? TileDots::signed_lines : TileDots::unsigned_panels;

template <class Unit, bool lines>
void add_whole_rows(const ops::I8AmxJob& job, std::int64_t step, std::int64_t steps, std::int64_t panels,
                    const std::uint8_t* const (&weights)[ops::i8_amx_panels], ops::I8AmxScratch& s, WeightsAhead weights_ahead) {
  add_rows<Unit, whole_dots<lines>>({job.a.at(0, step * whole_step_bytes), 0, weights, 0, s.sums}, job.rows, panels, steps,
                                    [&](std::int64_t) { weights_ahead.fetch(); });
}

// ---- scaled blocks: tiles 0 to 3 are sums of a block of sixteen rows with a panel, 4 and 5 the rows, 6 and 7 weights: each in turn, so
// that nothing is loaded to a tile that a product still reads

constexpr TileShapes block_shapes() {
  TileShapes shapes;
  for (const int t : {0, 1, 2, 3}) shapes.set(t, 16, 64);
  for (const int t : {4, 5}) shapes.set(t, 16, 32);
  for (const int t : {6, 7}) shapes.set(t, 8, 64);
  return shapes;
}
inline constexpr TileShapes shapes_of_scaled_blocks = block_shapes();

/// Sixteen rows or fewer and a panel, from some step on.
struct BlockSource {
  const std::uint8_t *a, *weights;
};
/// A block of a step: its products, and the way of their sums from tiles through memory to the vectors that scale and add them.
template <class Unit, int block>
struct BlockSums {
  static DODONA_INLINE void multiply(const BlockSource& from) {
    constexpr int of_a = 4 + block % 2, of_weights = 6 + block % 2;
    Unit::template load<of_a>(from.a + block * block_bytes, 32);
    Unit::template load<of_weights>(from.weights + block * block_bytes, 64);
    Unit::template zero<block>();
    Unit::template dot_bf16<block, of_a, of_weights>();
  }
  static DODONA_INLINE void store(ops::I8AmxScratch& s) { Unit::template store<block>(s.dots[block], 64); }
  template <int rows>
  static DODONA_INLINE void add(const ops::I8AmxScratch& s, const float* scales, f32x16 (&sums)[rows]) {
    const f32x16 of_columns = f32x16::load(scales + block * 16);
    DODONA_UNROLL(16)
    for (int r = 0; r < rows; ++r) sums[r] = fma(f32x16::load(s.dots[block] + 16 * r), of_columns, sums[r]);
  }
};

/// Begins the first step of a run of add_blocks.
template <class Unit>
DODONA_INLINE void begin_blocks(const BlockSource& first, ops::I8AmxScratch& s) {
  BlockSums<Unit, 0>::multiply(first);
  BlockSums<Unit, 1>::multiply(first);
  BlockSums<Unit, 0>::store(s);
  BlockSums<Unit, 2>::multiply(first);
  BlockSums<Unit, 1>::store(s);
  BlockSums<Unit, 3>::multiply(first);
}
/// sums[rows][..] of one panel += scaled sums of the blocks of `steps`, the first of which has begun; that of what is `next` begins before
/// the last one is added. A tile is stored when its next block is due, and added a block of each tile later: nothing waits for what was
/// begun just before.
template <class Unit, int rows>
void add_blocks(BlockSource from, const BlockSource& next, const float* scales, std::int64_t steps, float* sums, ops::I8AmxScratch& s) {
  f32x16 c[rows];
  DODONA_UNROLL(16)
  for (int r = 0; r < rows; ++r) c[r] = f32x16::load(sums + r * amx_sums_stride);
  for (std::int64_t step = 1; step <= steps; ++step, scales += 64) {
    from = step < steps ? BlockSource{from.a + 4 * block_bytes, from.weights + 4 * block_bytes} : next;
    BlockSums<Unit, 2>::store(s);
    BlockSums<Unit, 0>::multiply(from);
    BlockSums<Unit, 0>::add(s, scales, c);
    BlockSums<Unit, 3>::store(s);
    BlockSums<Unit, 1>::multiply(from);
    BlockSums<Unit, 1>::add(s, scales, c);
    BlockSums<Unit, 0>::store(s);
    BlockSums<Unit, 2>::multiply(from);
    BlockSums<Unit, 2>::add(s, scales, c);
    BlockSums<Unit, 1>::store(s);
    BlockSums<Unit, 3>::multiply(from);
    BlockSums<Unit, 3>::add(s, scales, c);
  }
  DODONA_UNROLL(16)
  for (int r = 0; r < rows; ++r) c[r].store(sums + r * amx_sums_stride);
}

/// All rows times some panels: their weights stay in a first-level cache, the rows of the chunk in a second-level one, from which sixteen
/// come once for all of these panels.
template <class Unit>
void add_block_rows(const ops::I8AmxJob& job, std::int64_t step, std::int64_t steps, std::int64_t panel, std::int64_t panels,
                    ops::I8AmxScratch& s, WeightsAhead& ahead) {
  const auto source = [&](std::int64_t r, std::int64_t p) { return BlockSource{job.a.at(r / 16, step * 4 * block_bytes), s.weights[p]}; };
  begin_blocks<Unit>(source(0, 0), s);
  for (std::int64_t r = 0; r < job.rows; r += 16) {
    for (std::int64_t p = 0; p < panels; ++p) {
      ahead.fetch();
      // What would come after the last ones is multiplied in vain.
      const BlockSource next = p + 1 < panels ? source(r, p + 1) : source(r + 16 < job.rows ? r + 16 : r, 0);
      float* const sums = s.sums + r * amx_sums_stride + 16 * (panel + p);
      if (job.rows - r > 8) {
        add_blocks<Unit, 16>(source(r, p), next, s.scales[p], steps, sums, s);
      } else {
        add_blocks<Unit, 8>(source(r, p), next, s.scales[p], steps, sums, s);
      }
    }
  }
}

// ---- one tile

/// `steps` of a packed panel of NVFP4, decoded to bf16.
DODONA_INLINE void decode_bf16(const std::uint8_t* packed, std::int64_t steps, std::uint8_t* weights, float* scales) {
  const i32x16 table = load_bytes(Nvfp4Bf16Unpack::word_table.words);
  for (std::int64_t s = 0; s < steps; ++s, packed += Nvfp4Unpack::step_bytes) {
    DODONA_UNROLL(4)
    for (int block = 0; block < 4; ++block) {
      Nvfp4Bf16Unpack::decode_pairs(packed, block, table, weights + (4 * s + block) * block_bytes);
      Nvfp4Unpack::scales(packed, block).store(scales + (4 * s + block) * 16);
    }
  }
}

/// Steps [step, step + count) of a panel, packed: raw weights of some panels are packed to `to` at a time, when it is the first one's turn.
template <class Unpack>
DODONA_INLINE const std::uint8_t* packed_panel(const ops::I8Weights& w, std::int64_t first, std::int64_t panels, std::int64_t p,
                                               std::int64_t step, std::int64_t count, std::uint8_t* to) {
  constexpr std::int64_t together = Unpack::panels_together;
  if (w.packed != nullptr) return w.packed + ((first + p) * ops::i8_steps(w.k) + step) * Unpack::step_bytes;
  if (p % together == 0) Unpack::pack(w, first + p, panels - p < together ? panels - p : together, step, step + count, to);
  return to + p % together * count * Unpack::step_bytes;
}

/// Packed weights of `chunk` steps of some panels, from step `next` on, or of the panels behind these where K ends there.
template <class Unpack>
DODONA_INLINE WeightsAhead ahead_of(const ops::I8Weights& w, std::int64_t first, std::int64_t panels, std::int64_t next, std::int64_t chunk,
                                    std::int64_t turns) {
  if (w.packed == nullptr) return {};
  const std::int64_t steps = ops::i8_steps(w.k), from = next < steps ? first * steps + next : (first + panels) * steps;
  return {w.packed + from * Unpack::step_bytes, panels, steps * Unpack::step_bytes, chunk * Unpack::step_bytes, turns};
}

/// The same of raw weights of four bits: lines of the columns.
DODONA_INLINE WeightsAhead raw_ahead_of(const ops::I8Weights& w, std::int64_t first, std::int64_t panels, std::int64_t next,
                                        std::int64_t chunk, std::int64_t turns) {
  const std::int64_t line = w.k / 2, step_bytes = ops::i8_step / 2, columns = panels * ops::i8_panel_columns;
  const bool ends = next >= ops::i8_steps(w.k);
  return {w.codes + (first * ops::i8_panel_columns + (ends ? columns : 0)) * line + (ends ? 0 : next * step_bytes), columns, line,
          chunk * step_bytes, turns};
}

/// Whole sums of few rows, all of which stay in tiles, with a pair of panels at a time: the next steps' weights are decoded while this one
/// is multiplied, so that memory is asked evenly.
template <class Unit, class Unpack, class Sums, bool lines>
void add_few_rows(const ops::I8AmxJob& job, std::int64_t first, std::int64_t panels, ops::I8AmxScratch& s) {
  constexpr std::int64_t together = 2, steps_together = 2, ahead = 8192;
  const ops::I8Weights& w = *job.weights;
  const std::int64_t steps = ops::i8_steps(w.k), panel_bytes = steps * Unpack::step_bytes;
  for (std::int64_t p = 0; p < panels; p += together) {
    const std::int64_t count = panels - p < together ? panels - p : together;
    const std::uint8_t* const packed = lines ? nullptr : w.packed + (first + p) * panel_bytes;
    constexpr bool as_they_are = !lines && packed_as_decoded<Unpack>;
    const std::uint8_t* weights[together] = {s.weights[0], s.weights[1]};
    if constexpr (as_they_are) weights[0] = packed, weights[1] = packed + panel_bytes;
    const TileBlock block{job.a.at(0, 0), job.a.sixteens * ops::i8_amx_chunk, weights, as_they_are ? ops::i8_amx_chunk : 0,
                          s.sums + 16 * p};
    const auto decode_from = [&](std::int64_t step) {
      const std::int64_t end = steps - step < steps_together ? steps : step + steps_together;
      const std::int64_t at = step % chunk_of_whole * whole_step_bytes;
      for (std::int64_t i = 0; i < count; ++i) {
        if constexpr (lines) {
          if (i % Unpack::panels_together == 0) Unpack::lines(w, first + p + i, step, end, s.weights[i] + at, ops::i8_amx_chunk);
        } else {
          const std::uint8_t* const from = packed + i * panel_bytes + step * Unpack::step_bytes;
          for (std::int64_t line = 0; line < (end - step) * Unpack::step_bytes; line += 64) __builtin_prefetch(from + ahead + line, 0, 2);
          if constexpr (!as_they_are) decode<Unpack, Sums>(from, end - step, s.weights[i] + at, nullptr);
        }
      }
    };
    const auto next = [&](std::int64_t step) {
      if (step % steps_together == 0 && step + steps_together < steps) decode_from(step + steps_together);
    };
    if (steps > 0) decode_from(0);
    if (job.rows > 16) {
      count == 2 ? add_tiles<Unit, whole_dots<lines>, 2, 2>(block, steps, next)
                 : add_tiles<Unit, whole_dots<lines>, 2, 1>(block, steps, next);
    } else {
      count == 2 ? add_tiles<Unit, whole_dots<lines>, 1, 2>(block, steps, next)
                 : add_tiles<Unit, whole_dots<lines>, 1, 1>(block, steps, next);
    }
  }
}

/// Whole sums of many rows and some panels, a chunk of K at a time.
template <class Unit, class Unpack, class Sums, bool lines>
void add_many_rows(const ops::I8AmxJob& job, std::int64_t first, std::int64_t panels, ops::I8AmxScratch& s) {
  const ops::I8Weights& w = *job.weights;
  const std::int64_t steps = ops::i8_steps(w.k);
  for (std::int64_t step = 0; step < steps; step += chunk_of_whole) {
    const std::int64_t count = steps - step < chunk_of_whole ? steps - step : chunk_of_whole;
    const std::uint8_t* decoded[ops::i8_amx_panels] = {};
    for (std::int64_t p = 0; p < panels; ++p) {
      decoded[p] = s.weights[p];
      if constexpr (lines) {
        if (p % Unpack::panels_together == 0) Unpack::lines(w, first + p, step, step + count, s.weights[p], ops::i8_amx_chunk);
      } else {
        // Raw weights that need no decoding are packed to where they stay.
        const std::uint8_t* const packed =
            packed_panel<Unpack>(w, first, panels, p, step, count, packed_as_decoded<Unpack> ? s.weights[p] : s.packed);
        if constexpr (packed_as_decoded<Unpack>) {
          decoded[p] = packed;
        } else {
          decode<Unpack, Sums>(packed, count, s.weights[p], nullptr);
        }
      }
    }
    add_whole_rows<Unit, lines>(job, step, count, panels, decoded, s,
                                ahead_of<Unpack>(w, first, panels, step + count, chunk_of_whole, turns_of_rows(job.rows, panels, count)));
  }
}

template <class Unit, class Unpack, class Sums>
void add_whole_panels(const ops::I8AmxJob& job, std::int64_t first, std::int64_t panels, ops::I8AmxScratch& s) {
  constexpr std::int64_t few = 32;
  if constexpr (has_lines<Unpack>)
    if (takes_lines<Unpack>(*job.weights)) {
      job.rows <= few ? add_few_rows<Unit, Unpack, Sums, true>(job, first, panels, s)
                      : add_many_rows<Unit, Unpack, Sums, true>(job, first, panels, s);
      for (std::int64_t r = 0; r < job.rows; r += 16)
        for (std::int64_t p = 0; p < panels; ++p) turn_back(s.sums + r * amx_sums_stride + 16 * p);
      return;
    }
  if (job.rows <= few && job.weights->packed != nullptr) return add_few_rows<Unit, Unpack, Sums, false>(job, first, panels, s);
  add_many_rows<Unit, Unpack, Sums, false>(job, first, panels, s);
}

/// NVFP4: blocks scaled.
template <class Unit, class Unpack>
void add_scaled_panels(const ops::I8AmxJob& job, std::int64_t first, std::int64_t panels, ops::I8AmxScratch& s) {
  constexpr std::int64_t chunk = ops::i8_amx_chunk / (4 * block_bytes);
  const ops::I8Weights& w = *job.weights;
  const std::int64_t steps = ops::i8_steps(w.k), turns = panels * ops::I8AmxRows::padded(job.rows) / 16;
  for (std::int64_t step = 0; step < steps; step += chunk) {
    const std::int64_t count = steps - step < chunk ? steps - step : chunk;
    WeightsAhead ahead = w.packed != nullptr ? ahead_of<Unpack>(w, first, panels, step + count, chunk, turns)
                                             : raw_ahead_of(w, first, panels, step + count, chunk, turns);
    for (std::int64_t p = 0; p < panels; p += ops::i8_amx_scaled_panels) {
      const std::int64_t together = panels - p < ops::i8_amx_scaled_panels ? panels - p : ops::i8_amx_scaled_panels;
      for (std::int64_t q = 0; q < together; ++q)
        decode_bf16(packed_panel<Nvfp4Bf16Unpack>(w, first, panels, p + q, step, count, s.packed), count, s.weights[q], s.scales[q]);
      add_block_rows<Unit>(job, step, count, p, together, s, ahead);
    }
  }
}

template <class Unit, class Unpack, class Sums>
void multiply_matrix_tile(const ops::I8AmxJob& job, std::int64_t first, std::int64_t panels, ops::I8AmxScratch& s) {
  const std::int64_t rows = ops::I8AmxRows::padded(job.rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    const typename Sums::Sum begin = Sums::first(job.a.corrections + r);
    for (std::int64_t p = 0; p < panels; ++p) Sums::store(begin, s.sums + r * amx_sums_stride + 16 * p);
  }
  if constexpr (Sums::scaled) {
    add_scaled_panels<Unit, Unpack>(job, first, panels, s);
  } else {
    add_whole_panels<Unit, Unpack, Sums>(job, first, panels, s);
  }
  const std::int64_t column = first * ops::i8_panel_columns, left = job.weights->n - column, most = panels * ops::i8_panel_columns;
  for (std::int64_t r = 0; r < job.rows; ++r)
    finish_row<Sums>(*job.epilogue, job.row + r, column, left < most ? left : most, s.sums + r * amx_sums_stride);
}

template <class Unit, class Unpack, class Sums>
void multiply_matrix_tiles(const ops::I8AmxJob& job, std::int64_t first, std::int64_t last, ops::I8AmxScratch& scratch) {
  const typename Unit::Session session(Sums::scaled ? shapes_of_scaled_blocks : shapes_of_tile_sums);
  const std::int64_t all = ops::i8_panels(job.weights->n);
  for (std::int64_t piece = first; piece < last; ++piece) {
    const std::int64_t panel = piece * job.panels, left = all - panel;
    multiply_matrix_tile<Unit, Unpack, Sums>(job, panel, left < job.panels ? left : job.panels, scratch);
  }
}

// ---- formats

template <class Unit>
struct MatrixUnit {
  static void prepare(const ops::I8AmxJob& job, const ops::I8AmxRow& from, std::int64_t row) {
    switch (job.format) {
      case ops::I8Format::nvfp4: return prepare_scaled_row(from, job.weights->k, job.a, row);
      case ops::I8Format::mxfp4:
      case ops::I8Format::e4m3_i4: return;  // not taken
      case ops::I8Format::i8: return prepare_whole_row<Int8Unpack>(job, from.codes, row);
      case ops::I8Format::i4: return prepare_whole_row<Int4Unpack>(job, from.codes, row);
      case ops::I8Format::qserve: return prepare_whole_row<QserveUnpack>(job, from.codes, row);
      case ops::I8Format::qserve_groups: return prepare_whole_row<QserveGroupUnpack>(job, from.codes, row);
    }
  }
  static void multiply(const ops::I8AmxJob& job, std::int64_t first, std::int64_t last, ops::I8AmxScratch& scratch) {
    switch (job.format) {
      case ops::I8Format::nvfp4: return multiply_matrix_tiles<Unit, Nvfp4Unpack, ScaledBlocks<1>>(job, first, last, scratch);
      case ops::I8Format::mxfp4:
      case ops::I8Format::e4m3_i4: return;
      case ops::I8Format::i8: return multiply_matrix_tiles<Unit, Int8Unpack, WholeSums>(job, first, last, scratch);
      case ops::I8Format::i4: return multiply_matrix_tiles<Unit, Int4Unpack, WholeSums>(job, first, last, scratch);
      case ops::I8Format::qserve: return multiply_matrix_tiles<Unit, QserveUnpack, WholeSums>(job, first, last, scratch);
      case ops::I8Format::qserve_groups: return multiply_matrix_tiles<Unit, QserveGroupUnpack, WholeSums>(job, first, last, scratch);
    }
  }
};

}  // namespace dodona::DODONA_TIER
