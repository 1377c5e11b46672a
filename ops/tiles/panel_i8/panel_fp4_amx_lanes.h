// FP4 by a matrix unit, see panel_i8_amx.h: all but its instructions, which are those of `Unit` (simd/amx_tiles.h). Included by
// *.simd.cpp, and by a test whose Unit is a model of them.
//
// Sums stay in tiles for all of K, so weights are decoded a few steps ahead, to a ring that a first-level cache holds. A multiplication by
// vectors waits for the unit's: what both take adds up, but memory is asked meanwhile.
#pragma once

#include <cstdint>

#include "ops/tiles/panel_i8/panel_i8_amx.h"
#include "ops/tiles/tile_sums.h"
#include "ops/tiles/unpack/fp4_bf16.h"

namespace dodona::DODONA_TIER {

static_assert(ops::i8_amx_chunk == tile_chunk_bytes && ops::i8_amx_columns == tile_sums_stride);
/// Of thirty-two k as bf16, two blocks of NVFP4: of sixteen rows, and of sixteen columns.
inline constexpr std::int64_t pair_bytes = tile_step_bytes, pairs_of_step = 2, pairs_together = ops::i8_amx_scaled_pairs;

// ---- rows

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
/// Nothing is to be corrected. K has whole pairs.
template <class Unpack>
DODONA_INLINE void prepare_scaled_row(const ops::I8AmxRow& from, std::int64_t k, const ops::I8AmxRows& to, std::int64_t row) {
  constexpr std::int64_t block = Unpack::Scales::block, blocks = 32 * pairs_together / block, words_of_block = 16 / blocks;
  const std::int64_t pairs = k / 32, there = from.codes != nullptr ? pairs : 0;
  const std::int64_t sixteen = row / ops::i8_amx_together, in_sixteen = row % ops::i8_amx_together;
  for (std::int64_t pair = 0; pair < pairs; pair += pairs_together) {
    const std::int64_t left = there > pair ? there - pair : 0, first = pair * 32 / block;
    std::uint8_t scales[blocks] = {}, of_words[16], most = 0;
    for (std::int64_t b = 0; b < blocks && b < left * 32 / block; ++b) scales[b] = from.scales[(first + b) / 4 * 512 + (first + b) % 4];
    for (std::int64_t word = 0; word < 16; ++word) of_words[word] = scales[word / words_of_block];
    if constexpr (!Unpack::always_exact)
      for (std::int64_t b = 0; b < blocks; b += 2) {
        const std::uint8_t by = apart(scales[b], scales[b + 1]);
        most = by > most ? by : most;
      }
    to.apart[(pair / pairs_together * to.sixteens + sixteen) * ops::i8_amx_together + in_sixteen] = most;
    i32x16 words[pairs_together];
    const auto* const codes = reinterpret_cast<const std::int32_t*>(from.codes + 16 * pair);
    Unpack::pairs_of_row(left > 0 ? i32x16::load_partial(codes, 4 * left) : i32x16::zero(), of_words, words);
    DODONA_UNROLL(4)
    for (std::int64_t i = 0; i < pairs_together; ++i)
      if (pair + i < pairs) words[i].store(reinterpret_cast<std::int32_t*>(to.at(sixteen, (pair + i) * pair_bytes) + in_sixteen * 64));
  }
  to.corrections[row] = 0;
}

// ---- panels

/// A pair sum adds up every other product of two blocks, and then both sums: as the contract does, if those sums are exact. They are at
/// most 1152 units of each block, and scales have digits up to 15: 24 bits hold them if the powers of two in the scales of two blocks, of
/// a row and of a column together, are no more than this apart. MXFP4 has one block.
inline constexpr int most_apart = 5;
static_assert(1152 * 15 * 15 * ((1 << most_apart) + 1) <= 1 << 24 && 1152 * 15 * 15 * ((1 << (most_apart + 1)) + 1) > 1 << 24);

/// Some panels on their way through K: their pairs of blocks that are decoded, in a ring of two times pairs_together.
struct ScaledPanels {
  const ops::I8Weights* w;
  std::int64_t first;
  std::uint8_t* ring[ops::i8_amx_scaled_panels];
  /// Of the steps in the ring, by panel: how far pairs are apart, in bytes.
  alignas(64) std::int32_t apart[2 * pairs_together / pairs_of_step][ops::i8_amx_scaled_panels][16];
  alignas(64) std::int32_t words[16][16] = {};  ///< of raw columns, two steps
};
inline constexpr std::int64_t steps_of_pairs = pairs_together / pairs_of_step;

template <class Unpack, class Fetch>
DODONA_INLINE void decode_words(ScaledPanels& p, std::int64_t step, int panel, const i32x16 (&words)[8], i32x16 scales,
                                const Fetch& fetch) {
  const std::int64_t place = step % (2 * steps_of_pairs);
  Unpack::decode(words, scales, p.ring[panel] + place * pairs_of_step * pair_bytes, fetch).store(p.apart[place][panel]);
}
/// Decodes a step of all panels, which are packed, and fetches those so many steps ahead.
template <class Unpack, int panels>
void decode_packed(ScaledPanels& p, std::int64_t step) {
  constexpr std::int64_t step_bytes = Unpack::step_bytes, steps_ahead = 2;
  const std::int64_t steps = ops::i8_steps(p.w->k), stride = steps * step_bytes;
  const std::uint8_t* packed = p.w->packed + (p.first * steps + step) * step_bytes;
  // Behind the last step come the panels behind these.
  const std::int64_t ahead = (step + steps_ahead < steps ? steps_ahead : steps_ahead + (panels - 1) * steps) * step_bytes;
  DODONA_UNROLL(4)
  for (int q = 0; q < panels; ++q, packed += stride) {
    i32x16 words[8];
    DODONA_UNROLL(8)
    for (int v = 0; v < 8; ++v) words[v] = load_bytes(packed + 64 * v);
    __builtin_prefetch(packed + ahead + 512);
    decode_words<Unpack>(p, step, q, words, load_bytes(packed + 512), ColumnsAhead{packed + ahead, 64});
  }
}
/// Decodes a step of one panel, which is raw. A transposition makes two steps: the second one waits until it is called for next.
template <class Unpack, int panels>
void decode_raw(ScaledPanels& p, std::int64_t step, int panel) {
  if (step % 2 == 0) {
    i32x16 words[16];
    words_of_steps(*p.w, p.first + panel, step, words);
    DODONA_UNROLL(16)
    for (int v = 0; v < 16; ++v) words[v].store(p.words[v]);
  }
  i32x16 words[8];
  DODONA_UNROLL(8)
  for (int v = 0; v < 8; ++v) words[v] = i32x16::load(p.words[step % 2 * 8 + v]);
  const ColumnsAhead ahead = columns_ahead(*p.w, p.first + panel, step / 2 * 2, panels * ops::i8_panel_columns);
  decode_words<Unpack>(p, step, panel, words, Unpack::scales_of_step(*p.w, p.first + panel, step),
                       ColumnsAhead{ahead.from + step % 2 * 8 * ahead.stride, ahead.stride});
}

/// Whether the sums of all pairs that go together with `pair` are exact, of rows whose blocks are so far apart at most.
template <int panels>
DODONA_INLINE bool are_exact(const ScaledPanels& p, std::int64_t pair, int of_rows) {
  if (of_rows > most_apart) return false;
  // A byte beyond the limit gets its highest bit.
  const i32x16 rest = i32x16::splat(0x01010101 * (127 - most_apart + of_rows));
  i32x16 beyond = i32x16::zero();
  DODONA_UNROLL(2)
  for (std::int64_t i = 0; i < steps_of_pairs; ++i) {
    // In the place of a step behind the last an earlier one's stands, or none.
    const auto& apart = p.apart[(pair / pairs_of_step + i) % (2 * steps_of_pairs)];
    DODONA_UNROLL(4)
    for (int q = 0; q < panels; ++q) beyond = beyond | add_8(i32x16::load(apart[q]), rest);
  }
  return all((beyond & i32x16::splat(static_cast<std::int32_t>(0x80808080))) == i32x16::zero());
}

/// Sums of at most sixteen rows and some panels += a pair of blocks, `offset` into the ring, whose sums may not be exact: the unit rounds
/// those of the two blocks once, from one to the other, and vectors add them.
template <class Unit, int panels>
void add_rounded_pair(const std::uint8_t* a, std::int64_t rows, const ScaledPanels& p, std::int64_t offset, float* sums, float* dots) {
  alignas(64) std::uint8_t first[pair_bytes] = {}, second[pair_bytes] = {};
  for (std::int64_t r = 0; r < pair_bytes; r += 64) {
    __builtin_memcpy(first + r, a + r, 32);
    __builtin_memcpy(second + r + 32, a + r + 32, 32);
  }
  for (int q = 0; q < panels; ++q, sums += 16) {
    Unit::template zero<0>();
    Unit::template load<7>(p.ring[q] + offset, 64);
    Unit::template load<4>(first, 64);
    Unit::template dot_bf16<0, 4, 7>();
    Unit::template load<4>(second, 64);
    Unit::template dot_bf16<0, 4, 7>();
    Unit::template store<0>(dots, 64);
    for (std::int64_t r = 0; r < rows; ++r)
      (f32x16::load(sums + r * tile_sums_stride) + f32x16::load(dots + 16 * r)).store(sums + r * tile_sums_stride);
  }
}

/// All of K of all rows and of some panels, for which there are tiles: pairs are decoded while others are multiplied.
template <class Unit, class Unpack, bool raw, int sixteens, int panels>
void add_scaled_tiles(const ops::I8AmxJob& job, std::int64_t first, float* sums, ops::I8AmxScratch& s) {
  const std::int64_t pairs = job.weights->k / 32, steps = ops::i8_steps(job.weights->k);
  ScaledPanels p{job.weights, first, {}, {}};
  for (int q = 0; q < panels; ++q) p.ring[q] = s.weights[q];
  TileBlock block{job.a.at(0, 0), sixteens * ops::i8_amx_chunk, p.ring, 0, sums, tile_sums_stride, true};
  const auto decode_behind = [&](std::int64_t pair) {
    const std::int64_t step = pair / pairs_of_step + steps_of_pairs;
    if constexpr (raw) {
      // One panel after another.
      constexpr std::int64_t pairs_a_turn = pairs_together / (steps_of_pairs * panels);
      const std::int64_t turn = pair % pairs_together / pairs_a_turn, next = step / steps_of_pairs * steps_of_pairs + turn % steps_of_pairs;
      if (pair % pairs_a_turn == 0 && next < steps) decode_raw<Unpack, panels>(p, next, static_cast<int>(turn / steps_of_pairs));
    } else if (pair % pairs_of_step == 0 && step < steps) {
      decode_packed<Unpack, panels>(p, step);
    }
  };
  const auto begin = [&](std::int64_t pair) {
    if constexpr (!Unpack::always_exact)
      if (pair % pairs_together == 0 && !are_exact<panels>(p, pair, job.a.most_apart[pair / pairs_together])) return false;
    decode_behind(pair);
    return true;
  };
  if constexpr (raw) {
    for (int q = 0; q < panels; ++q)
      for (std::int64_t step = 0; step < steps_of_pairs && step < steps; ++step) decode_raw<Unpack, panels>(p, step, q);
  } else {
    for (std::int64_t step = 0; step < steps_of_pairs && step < steps; ++step) decode_packed<Unpack, panels>(p, step);
  }
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
        add_rounded_pair<Unit, panels>(job.a.at(i, pair * pair_bytes), sixteens > 1 ? 16 : job.rows, p,
                                       pair % (2 * pairs_together) * pair_bytes, sums + i * ops::i8_amx_together * tile_sums_stride,
                                       s.dots);
    }
  } while (pair < pairs);
}

/// As many panels together as there are tiles; of raw ones two, as memory gives few columns at a time best.
template <class Unit, class Unpack, bool raw>
void add_scaled_panels(const ops::I8AmxJob& job, std::int64_t first, std::int64_t panels, ops::I8AmxScratch& s) {
  if (job.a.sixteens <= 2)
    return in_tiles < raw ? 2 : 4 > (job.rows, panels, [&]<int sixteens, int together>(std::int64_t, std::int64_t p) {
                                  add_scaled_tiles<Unit, Unpack, raw, sixteens, together>(job, first + p, s.sums + 16 * p, s);
                                });
  for (std::int64_t p = 0; p < panels; ++p)
    job.a.sixteens == 3 ? add_scaled_tiles<Unit, Unpack, raw, 3, 1>(job, first + p, s.sums + 16 * p, s)
                        : add_scaled_tiles<Unit, Unpack, raw, 4, 1>(job, first + p, s.sums + 16 * p, s);
}

}  // namespace dodona::DODONA_TIER
