// Digits of e4m3 times int4 by a matrix unit: all but its instructions, which are those of `Unit` (simd/amx_tiles.h). Included by
// *.simd.cpp, and by a test whose Unit is a model of them.
#pragma once

#include "ops/tiles/panel_i8/panel_digits_amx.h"
#include "ops/tiles/panel_i8/panel_digits_lanes.h"
#include "ops/tiles/tile_sums.h"

namespace dodona::DODONA_TIER {

/// At most so many rows at a time.
inline constexpr std::int64_t digits_amx_rows = 16;

/// Tiles 0 to 3 are sums of two digits with a panel and with the next, 4 and 5 the digits, 6 and 7 the panels.
inline constexpr ShapesOfRows shapes_of_digits = shapes_by_rows(6);

/// A block of panels: codes plus 8 of even k, then of odd ones, as bytes.
struct DigitsDecoded {
  alignas(64) std::uint8_t panels[ops::i8_tile_panels][2][digits_code_bytes];
};
template <int panels>
DODONA_INLINE void decode_block(const DigitsTask& task, std::int64_t block, DigitsDecoded& out) {
  DODONA_UNROLL(2)
  for (int p = 0; p < panels; ++p) {
    const std::uint8_t* const codes = task.weights[p].codes + block * digits_code_bytes;
    DODONA_UNROLL(16)
    for (int v = 0; v < 16; ++v) {
      __builtin_prefetch(codes + 64 * v + task.ahead);
      const i32x16 both = load_bytes(codes + 64 * v);
      low_codes(both).store(reinterpret_cast<std::int32_t*>(out.panels[p][0] + 64 * v));
      high_codes(both).store(reinterpret_cast<std::int32_t*>(out.panels[p][1] + 64 * v));
    }
  }
}

/// A block of some rows, `rows` from `a` on, which are multiplied all and added from `first` on; their digits; and their sums, of each
/// digit with each panel.
struct DigitsBlock {
  ops::I8Rows a;
  std::int64_t block, first;
  float* sums;
  bool three;
  alignas(64) std::int32_t dots[3][ops::i8_tile_panels][digits_amx_rows * ops::i8_panel_columns];
};

/// Tile c, and that after the next for a second panel, are the sums of a digit that tile `a` holds.
template <class Unit, int panels, int c, int a>
DODONA_INLINE void add_digit(const std::int8_t* digit, std::int64_t stride) {
  Unit::template load<a>(digit, stride);
  Unit::template dot_su<c, a, 6>();
  if constexpr (panels == 2) Unit::template dot_su<c + 2, a, 7>();
}
template <class Unit, int panels, int c>
DODONA_INLINE void zero_digit() {
  Unit::template zero<c>();
  if constexpr (panels == 2) Unit::template zero<c + 2>();
}
template <class Unit, int panels, int c>
DODONA_INLINE void store_digit(std::int32_t (&dots)[ops::i8_tile_panels][digits_amx_rows * ops::i8_panel_columns]) {
  Unit::template store<c>(dots[0], 64);
  if constexpr (panels == 2) Unit::template store<c + 2>(dots[1], 64);
}
template <class Unit, int panels>
DODONA_INLINE void load_weights(const DigitsDecoded& weights, int odd) {
  Unit::template load<6>(weights.panels[0][odd], 64);
  if constexpr (panels == 2) Unit::template load<7>(weights.panels[1][odd], 64);
}
template <class Unit, int panels>
DODONA_INLINE void multiply_digits_block(const DigitsDecoded& weights, DigitsBlock& to) {
  const std::int8_t* const digits = to.a.codes + to.block * digits_bytes;
  zero_digit<Unit, panels, 0>();
  zero_digit<Unit, panels, 1>();
  for (int odd = 0; odd < 2; ++odd) {
    load_weights<Unit, panels>(weights, odd);
    add_digit<Unit, panels, 0, 4>(digits + 64 * odd, digits_row_bytes);
    add_digit<Unit, panels, 1, 5>(digits + 64 * odd + digits_k, digits_row_bytes);
  }
  store_digit<Unit, panels, 0>(to.dots[0]);
  store_digit<Unit, panels, 1>(to.dots[1]);
  if (!to.three) return;
  const std::int8_t* const third = to.a.rare + to.block * digits_rare_bytes;
  zero_digit<Unit, panels, 0>();
  for (int odd = 0; odd < 2; ++odd) {
    load_weights<Unit, panels>(weights, odd);
    add_digit<Unit, panels, 0, 4>(third + 64 * odd, digits_rare_row_bytes);
  }
  store_digit<Unit, panels, 0>(to.dots[2]);
}

/// Those sums, scaled and added to sums[rows][16 * panels]; vectors add rows that digits do not hold.
template <int panels>
DODONA_INLINE void add_dots(const DigitsTask& task, const DigitsBlock& from, std::int64_t rows) {
  f32x16 scales[panels];
  DODONA_UNROLL(2)
  for (int p = 0; p < panels; ++p) scales[p] = load_bf16(task.weights[p].scales + from.block * digits_scale_bytes);
  for (std::int64_t r = from.first; r < rows; ++r) {
    const std::int64_t at = r * ops::i8_chunk_blocks + from.block * digits_sixteens;
    float* const to = from.sums + r * i8_sums_stride;
    const std::int32_t digits = from.a.corrections[at + 1];
    if (digits == 0) {
      add_block<1>(task, from.a.at(r, 0), from.block, to);
      continue;
    }
    DODONA_UNROLL(2)
    for (int p = 0; p < panels; ++p) {
      const auto of_digit = [&](int digit) { return i32x16::load(from.dots[digit][p] + 16 * r); };
      i32x16 whole = of_digit(0) + shl<8>(of_digit(1)) + i32x16::splat(from.a.corrections[at]);
      if (digits == 3) whole = whole + shl<16>(of_digit(2));
      fma(to_f32(whole) * f32x16::splat(from.a.scales[at]), scales[p], f32x16::load(to + 16 * p)).store(to + 16 * p);
    }
  }
}
DODONA_INLINE bool three_digits(const ops::I8Rows& a, std::int64_t rows, std::int64_t block) {
  bool three = false;
  for (std::int64_t r = 0; r < rows; ++r) three |= a.corrections[r * ops::i8_chunk_blocks + block * digits_sixteens + 1] == 3;
  return three;
}

/// All rows of a tile, `together` at a time, times a chunk: the next block is decoded before one is multiplied, and sums are added while
/// the next ones are made.
template <class Unit, int panels>
DODONA_INLINE void add_chunk(const DigitsTask& task, const ops::I8Rows& a, std::int64_t rows, std::int64_t together, float* sums) {
  DigitsDecoded decoded[2];
  DigitsBlock blocks[2];
  std::int64_t count = 0;
  decode_block<panels>(task, 0, decoded[0]);
  for (std::int64_t block = 0; block < task.blocks; ++block) {
    if (block + 1 < task.blocks) decode_block<panels>(task, block + 1, decoded[(block + 1) % 2]);
    for (std::int64_t r = 0; r < rows; r += together, ++count) {
      // The last ones begin among those before them: nothing behind all rows is read.
      const std::int64_t begin = r + together <= rows ? r : rows - together;
      DigitsBlock& now = blocks[count % 2];
      now.a = a.at(begin, 0), now.block = block, now.first = r - begin, now.sums = sums + begin * i8_sums_stride;
      now.three = three_digits(now.a, together, block);
      multiply_digits_block<Unit, panels>(decoded[block % 2], now);
      if (count > 0) add_dots<panels>(task, blocks[(count + 1) % 2], together);
    }
  }
  add_dots<panels>(task, blocks[(count + 1) % 2], together);
}

template <class Unit>
void multiply_digits_by(const ops::I8Tile& tile) {
  const std::int64_t parts = (tile.rows + digits_amx_rows - 1) / digits_amx_rows, together = (tile.rows + parts - 1) / parts;
  const typename Unit::Session session(shapes_of_digits.of[together]);
  multiply_digits(tile, [&](const DigitsTask& task, const ops::I8Rows& a, float* sums) {
    task.panels == 2 ? add_chunk<Unit, 2>(task, a, tile.rows, together, sums) : add_chunk<Unit, 1>(task, a, tile.rows, together, sums);
  });
}

}  // namespace dodona::DODONA_TIER
