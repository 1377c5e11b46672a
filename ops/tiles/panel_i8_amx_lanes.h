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
/// Of two blocks of sixteen k as bf16: of sixteen rows, and of sixteen columns.
inline constexpr std::int64_t pair_bytes = 1024, pairs_of_step = 2, pairs_together = ops::i8_amx_scaled_pairs;

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

/// The power of two of a scale's last digit: an e4m3 code's exponent, of denormals as of the least normal numbers.
DODONA_INLINE int exponent_of(std::uint8_t code) {
  const int exponent = code >> 3 & 15;
  return exponent > 0 ? exponent : 1;
}
/// How far two blocks with such scales are apart: one of zeros is not.
DODONA_INLINE std::uint8_t apart(std::uint8_t first, std::uint8_t second) {
  if ((first & 0x7F) == 0 || (second & 0x7F) == 0) return 0;
  const int by = exponent_of(first) - exponent_of(second);
  return static_cast<std::uint8_t>(by < 0 ? -by : by);
}
/// NVFP4: nothing is to be corrected. K has whole pairs.
DODONA_INLINE void prepare_scaled_row(const ops::I8AmxRow& from, std::int64_t k, const ops::I8AmxRows& to, std::int64_t row) {
  constexpr std::int64_t blocks = 2 * pairs_together;
  const std::int64_t pairs = k / 32, there = from.codes != nullptr ? pairs : 0;
  const std::int64_t sixteen = row / ops::i8_amx_together, in_sixteen = row % ops::i8_amx_together;
  for (std::int64_t pair = 0; pair < pairs; pair += pairs_together) {
    const std::int64_t left = there > pair ? there - pair : 0;
    std::uint8_t scales[blocks] = {}, of_words[2 * blocks], most = 0;
    if (left > 0) __builtin_memcpy(scales, from.scales + pair / 2 * 512, left > 1 ? 4 : 2);
    if (left > 2) __builtin_memcpy(scales + 4, from.scales + (pair / 2 + 1) * 512, left > 3 ? 4 : 2);
    for (std::int64_t b = 0; b < blocks; ++b) of_words[2 * b] = of_words[2 * b + 1] = scales[b];
    for (std::int64_t b = 0; b < blocks; b += 2) {
      const std::uint8_t by = apart(scales[b], scales[b + 1]);
      most = by > most ? by : most;
    }
    to.apart[(pair / pairs_together * to.sixteens + sixteen) * ops::i8_amx_together + in_sixteen] = most;
    i32x16 words[pairs_together];
    const auto* const codes = reinterpret_cast<const std::int32_t*>(from.codes + 16 * pair);
    Nvfp4Bf16Unpack::row(left > 0 ? i32x16::load_partial(codes, 4 * left) : i32x16::zero(), load_e4m3(of_words), words);
    DODONA_UNROLL(4)
    for (std::int64_t i = 0; i < pairs_together; ++i)
      if (pair + i < pairs) words[i].store(reinterpret_cast<std::int32_t*>(to.at(sixteen, (pair + i) * pair_bytes) + in_sixteen * 64));
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

// ---- one tile

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

// ---- NVFP4

/// A pair sum adds up every other product of two blocks, and then both sums: as the contract does, if those sums are exact. They are at
/// most 1152 units of each block, and scales have digits up to 15: 24 bits hold them if the powers of two in the scales of two blocks, of
/// a row and of a column together, are no more than this apart.
inline constexpr int most_apart = 5;
static_assert(1152 * 15 * 15 * ((1 << most_apart) + 1) <= 1 << 24 && 1152 * 15 * 15 * ((1 << (most_apart + 1)) + 1) > 1 << 24);

/// Some panels on their way through K: their pairs of blocks that are decoded, in a ring of two times pairs_together.
struct ScaledPanels {
  const ops::I8Weights* w;
  std::int64_t first;
  std::uint8_t *ring[ops::i8_amx_scaled_panels], *raw;
  /// Of the steps in the ring, by panel: how far pairs are apart, in bytes.
  alignas(64) std::int32_t apart[2 * pairs_together / pairs_of_step][ops::i8_amx_scaled_panels][16];
};
inline constexpr std::int64_t steps_together = pairs_together / pairs_of_step;

/// Decodes a step of all panels. Packed ones are fetched so many steps ahead; raw ones are packed some steps at a time.
template <int panels>
void decode_step(ScaledPanels& p, std::int64_t step) {
  constexpr std::int64_t step_bytes = Nvfp4Unpack::step_bytes, steps_ahead = 2, at_once = ops::i8_amx_packed_steps;
  const std::int64_t steps = ops::i8_steps(p.w->k), turn = step % at_once;
  const std::uint8_t* packed = p.raw + turn * step_bytes;
  std::int64_t stride = at_once * step_bytes;
  if (p.w->packed != nullptr) {
    packed = p.w->packed + (p.first * steps + step) * step_bytes;
    stride = steps * step_bytes;
  } else if (turn == 0) {
    const std::int64_t end = steps - step < at_once ? steps : step + at_once;
    for (int q = 0; q < panels; ++q) Nvfp4Unpack::pack(*p.w, p.first + q, 1, step, end, p.raw + q * stride);
  }
  const std::int64_t place = step % (2 * steps_together);
  // Behind the last step come the panels behind these.
  const std::int64_t ahead = (step + steps_ahead < steps ? steps_ahead : steps_ahead + (panels - 1) * steps) * step_bytes;
  DODONA_UNROLL(4)
  for (int q = 0; q < panels; ++q, packed += stride) {
    DODONA_UNROLL(9)
    for (int line = 0; line < step_bytes / 64; ++line) __builtin_prefetch(packed + ahead + 64 * line);
    Nvfp4Bf16Unpack::decode_step(packed, p.ring[q] + place * pairs_of_step * pair_bytes).store(p.apart[place][q]);
  }
}

/// Whether the sums of all pairs that go together with `pair` are exact, of rows whose blocks are so far apart at most.
template <int panels>
DODONA_INLINE bool are_exact(const ScaledPanels& p, std::int64_t pair, int of_rows) {
  if (of_rows > most_apart) return false;
  // A byte beyond the limit gets its highest bit.
  const i32x16 rest = i32x16::splat(0x01010101 * (127 - most_apart + of_rows));
  i32x16 beyond = i32x16::zero();
  DODONA_UNROLL(2)
  for (std::int64_t i = 0; i < steps_together; ++i) {
    // In the place of a step behind the last an earlier one's stands, or none.
    const auto& apart = p.apart[(pair / pairs_of_step + i) % (2 * steps_together)];
    DODONA_UNROLL(4)
    for (int q = 0; q < panels; ++q) beyond = beyond | add_8(i32x16::load(apart[q]), rest);
  }
  return all((beyond & i32x16::splat(static_cast<std::int32_t>(0x80808080))) == i32x16::zero());
}

/// Sums of sixteen rows and some panels += a pair of blocks, `offset` into the ring, whose sums may not be exact: the unit rounds those of
/// the two blocks once, from one to the other, and vectors add them.
template <class Unit, int panels>
void add_rounded_pair(const std::uint8_t* a, const ScaledPanels& p, std::int64_t offset, float* sums, float* dots) {
  alignas(64) std::uint8_t first[pair_bytes] = {}, second[pair_bytes] = {};
  for (std::int64_t r = 0; r < pair_bytes; r += 64) {
    __builtin_memcpy(first + r, a + r, 32);
    __builtin_memcpy(second + r + 32, a + r + 32, 32);
  }
  Unit::template load<5>(first, 64);
  Unit::template load<6>(second, 64);
  for (int q = 0; q < panels; ++q, sums += 16) {
    Unit::template zero<0>();
    Unit::template load<4>(p.ring[q] + offset, 64);
    Unit::template dot_bf16<0, 5, 4>();
    Unit::template dot_bf16<0, 6, 4>();
    Unit::template store<0>(dots, 64);
    DODONA_UNROLL(16)
    for (int r = 0; r < 16; ++r) (f32x16::load(sums + r * amx_sums_stride) + f32x16::load(dots + 16 * r)).store(sums + r * amx_sums_stride);
  }
}

/// All of K of all rows and of some panels, for which there are tiles: pairs are decoded while others are multiplied.
template <class Unit, int sixteens, int panels>
void add_scaled_tiles(const ops::I8AmxJob& job, std::int64_t first, float* sums, ops::I8AmxScratch& s) {
  const std::int64_t pairs = job.weights->k / 32, steps = ops::i8_steps(job.weights->k);
  ScaledPanels p{job.weights, first, {}, s.packed, {}};
  for (int q = 0; q < panels; ++q) p.ring[q] = s.weights[q];
  TileBlock block{job.a.at(0, 0), sixteens * ops::i8_amx_chunk, p.ring, 0, sums, amx_sums_stride, true};
  const auto decode_behind = [&](std::int64_t pair) {
    const std::int64_t step = pair / pairs_of_step + steps_together;
    if (pair % pairs_of_step == 0 && step < steps) decode_step<panels>(p, step);
  };
  const auto begin = [&](std::int64_t pair) {
    if (pair % pairs_together == 0 && !are_exact<panels>(p, pair, job.a.most_apart[pair / pairs_together])) return false;
    decode_behind(pair);
    return true;
  };
  for (std::int64_t step = 0; step < steps_together && step < steps; ++step) decode_step<panels>(p, step);
  std::int64_t pair = 0;
  do {
    if constexpr (sixteens > 2) {
      pair = add_tall_tiles<Unit, TileDots::pairs, sixteens>(block, pairs, begin, pair);
    } else {
      pair = add_tiles<Unit, TileDots::pairs, sixteens, panels>(block, pairs, begin, pair);
    }
    block.from_zero = false;
    for (const std::int64_t end = pair + pairs_together; pair < end && pair < pairs; ++pair) {
      decode_behind(pair);
      for (std::int64_t i = 0; i < sixteens; ++i)
        add_rounded_pair<Unit, panels>(job.a.at(i, pair * pair_bytes), p, pair % (2 * pairs_together) * pair_bytes,
                                       sums + i * ops::i8_amx_together * amx_sums_stride, s.dots);
    }
  } while (pair < pairs);
}

template <class Unit>
void add_scaled_panels(const ops::I8AmxJob& job, std::int64_t first, std::int64_t panels, ops::I8AmxScratch& s) {
  const auto add = [&]<int sixteens, int together>(std::integral_constant<int, sixteens>, std::integral_constant<int, together>,
                                                   std::int64_t p) {
    add_scaled_tiles<Unit, sixteens, together>(job, first + p, s.sums + 16 * p, s);
  };
  constexpr std::integral_constant<int, 1> one;
  constexpr std::integral_constant<int, 2> two;
  constexpr std::integral_constant<int, 3> three;
  constexpr std::integral_constant<int, 4> four;
  const auto each = [&](auto sixteens, auto together) {
    std::int64_t p = 0;
    for (; panels - p >= together; p += together) add(sixteens, together, p);
    if constexpr (together > 2)
      if (panels - p == 3) return add(sixteens, three, p);
    if constexpr (together > 2)
      if (panels - p == 2) return add(sixteens, two, p);
    if (panels > p) add(sixteens, one, p);
  };
  switch (job.a.sixteens) {
    case 1: return each(one, four);
    case 2: return each(two, two);
    case 3: return each(three, one);
    default: return each(four, one);
  }
}

template <class Unit, class Unpack, class Sums>
void multiply_matrix_tile(const ops::I8AmxJob& job, std::int64_t first, std::int64_t panels, ops::I8AmxScratch& s) {
  if constexpr (Sums::scaled) {
    add_scaled_panels<Unit>(job, first, panels, s);
  } else {
    const std::int64_t rows = ops::I8AmxRows::padded(job.rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      const typename Sums::Sum begin = Sums::first(job.a.corrections + r);
      for (std::int64_t p = 0; p < panels; ++p) Sums::store(begin, s.sums + r * amx_sums_stride + 16 * p);
    }
    add_whole_panels<Unit, Unpack, Sums>(job, first, panels, s);
  }
  const std::int64_t column = first * ops::i8_panel_columns, left = job.weights->n - column, most = panels * ops::i8_panel_columns;
  for (std::int64_t r = 0; r < job.rows; ++r)
    finish_row<Sums>(*job.epilogue, job.row + r, column, left < most ? left : most, s.sums + r * amx_sums_stride);
}

template <class Unit, class Unpack, class Sums>
void multiply_matrix_tiles(const ops::I8AmxJob& job, std::int64_t first, std::int64_t last, ops::I8AmxScratch& scratch) {
  const typename Unit::Session session(shapes_of_tile_sums);
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
      case ops::I8Format::nvfp4: return multiply_matrix_tiles<Unit, Nvfp4Unpack, PairsOfBlocks>(job, first, last, scratch);
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
