// Products by a matrix unit: all but its instructions, which are those of `Unit` (simd/amx_tiles.h). Included by *.simd.cpp, and by a test
// whose Unit is a model of them.
#pragma once

#include <cstdint>

#include "ops/tiles/panel_i8/panel_fp4_amx_lanes.h"
#include "ops/tiles/panel_i8/panel_i8_amx.h"
#include "ops/tiles/panel_i8/panel_i8_lanes.h"
#include "ops/tiles/tile_sums.h"
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

// ---- whole sums

inline constexpr std::int64_t chunk_of_whole = ops::i8_amx_chunk / whole_step_bytes;
static_assert(whole_step_bytes == tile_step_bytes && ops::i8_amx_chunk == tile_chunk_bytes);
template <bool lines>
inline constexpr TileDots whole_dots = lines ? TileDots::signed_lines : TileDots::unsigned_panels;

template <class Unit, bool lines>
void add_whole_rows(const ops::I8AmxJob& job, std::int64_t step, std::int64_t steps, std::int64_t panels,
                    const std::uint8_t* const (&weights)[ops::i8_amx_panels], ops::I8AmxScratch& s, WeightsAhead weights_ahead) {
  add_rows<Unit, whole_dots<lines>>({job.a.at(0, step * whole_step_bytes), 0, weights, 0, s.sums}, job.rows, panels, steps,
                                    [&](std::int64_t) { weights_ahead.fetch(); });
}

// ---- one tile

/// Steps [step, step + count) of a panel, packed: raw weights of some panels are packed to `to` at a time, when it is the first one's turn.
template <class Unpack>
DODONA_INLINE const std::uint8_t* packed_panel(const ops::I8Weights& w, std::int64_t first, std::int64_t panels, std::int64_t p,
                                               std::int64_t step, std::int64_t count, std::uint8_t* to) {
  constexpr std::int64_t together = Unpack::panels_together;
  if (w.packed != nullptr) return w.packed + ((first + p) * ops::i8_steps(w.k) + step) * Unpack::step_bytes;
  if (p % together == 0) Unpack::pack(w, first + p, panels - p < together ? panels - p : together, step, step + count, false, to);
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
        for (std::int64_t p = 0; p < panels; ++p) turn_back(s.sums + r * tile_sums_stride + 16 * p);
      return;
    }
  if (job.rows <= few && job.weights->packed != nullptr) return add_few_rows<Unit, Unpack, Sums, false>(job, first, panels, s);
  add_many_rows<Unit, Unpack, Sums, false>(job, first, panels, s);
}

// ---- one tile of either

template <class Unit, class Unpack, class Sums>
void multiply_matrix_tile(const ops::I8AmxJob& job, std::int64_t first, std::int64_t panels, ops::I8AmxScratch& s) {
  if constexpr (Sums::scaled) {
    job.weights->packed == nullptr ? add_scaled_panels<Unit, Unpack, true>(job, first, panels, s)
                                   : add_scaled_panels<Unit, Unpack, false>(job, first, panels, s);
  } else {
    const std::int64_t rows = ops::I8AmxRows::padded(job.rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      const typename Sums::Sum begin = Sums::first(job.a.corrections + r);
      for (std::int64_t p = 0; p < panels; ++p) Sums::store(begin, s.sums + r * tile_sums_stride + 16 * p);
    }
    add_whole_panels<Unit, Unpack, Sums>(job, first, panels, s);
  }
  const std::int64_t column = first * ops::i8_panel_columns, left = job.weights->n - column, most = panels * ops::i8_panel_columns;
  for (std::int64_t r = 0; r < job.rows; ++r)
    finish_row<Sums>(*job.epilogue, job.row + r, column, left < most ? left : most, s.sums + r * tile_sums_stride);
}

template <class Unit, class Unpack, class Sums>
void multiply_matrix_tiles(const ops::I8AmxJob& job, std::int64_t first, std::int64_t last, ops::I8AmxScratch& scratch) {
  const bool few = Sums::scaled && job.rows <= ops::i8_amx_together;
  const typename Unit::Session session(few ? shapes_of_few_rows.of[job.rows] : shapes_of_tile_sums);
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
      case ops::I8Format::nvfp4: return prepare_scaled_row<Nvfp4Bf16Unpack>(from, job.weights->k, job.a, row);
      case ops::I8Format::mxfp4: return prepare_scaled_row<Mxfp4Bf16Unpack>(from, job.weights->k, job.a, row);
      case ops::I8Format::e4m3_i4: return;  // not taken
      case ops::I8Format::i8: return prepare_whole_row<Int8Unpack>(job, from.codes, row);
      case ops::I8Format::i4: return prepare_whole_row<Int4Unpack>(job, from.codes, row);
      case ops::I8Format::qserve: return prepare_whole_row<QserveUnpack>(job, from.codes, row);
      case ops::I8Format::qserve_groups: return prepare_whole_row<QserveGroupUnpack>(job, from.codes, row);
    }
  }
  static void multiply(const ops::I8AmxJob& job, std::int64_t first, std::int64_t last, ops::I8AmxScratch& scratch) {
    switch (job.format) {
      case ops::I8Format::nvfp4: return multiply_matrix_tiles<Unit, Nvfp4Bf16Unpack, PairsOfBlocks>(job, first, last, scratch);
      case ops::I8Format::mxfp4: return multiply_matrix_tiles<Unit, Mxfp4Bf16Unpack, BlocksOfTwo>(job, first, last, scratch);
      case ops::I8Format::e4m3_i4: return;
      case ops::I8Format::i8: return multiply_matrix_tiles<Unit, Int8Unpack, WholeSums>(job, first, last, scratch);
      case ops::I8Format::i4: return multiply_matrix_tiles<Unit, Int4Unpack, WholeSums>(job, first, last, scratch);
      case ops::I8Format::qserve: return multiply_matrix_tiles<Unit, QserveUnpack, WholeSums>(job, first, last, scratch);
      case ops::I8Format::qserve_groups: return multiply_matrix_tiles<Unit, QserveGroupUnpack, WholeSums>(job, first, last, scratch);
    }
  }
};

}  // namespace dodona::DODONA_TIER
