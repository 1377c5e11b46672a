// Sums of rows and columns in the tiles of a matrix unit, whose instructions are those of `Unit` (simd/amx_tiles.h). Included by
// *.simd.cpp, and by tests.
//
// Operands are steps of a kilobyte, sixteen lines of 64 bytes: rows, and panels of sixteen columns. Of one of the two a line is 64 bytes of
// K of a row or a column; of the other one it is a word of 32 bits of each of the sixteen.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "simd/amx.h"
#include "simd/f32x16.h"
#include "simd/registers.h"

namespace dodona::DODONA_TIER {

inline constexpr std::int64_t tile_step_bytes = 1024;

/// How the two are multiplied. `lines`: it is the panels of which each line is of one column, and the unit's left operand, so that sums of
/// sixteen rows and a panel come turned, a line for each column. Else a line is of one row.
enum class TileDots {
  unsigned_panels,  ///< bytes: signed rows, unsigned panels
  signed_lines,     ///< bytes
  pairs,            ///< bf16
  pair_lines,
};
constexpr bool has_lines_of(TileDots dots) {
  return dots == TileDots::signed_lines || dots == TileDots::pair_lines;
}

/// Bytes of a chunk of K, of sixteen rows and of a panel. Rows lie chunk by chunk, and all sixteens of a chunk together.
inline constexpr std::int64_t tile_chunk_bytes = 8192, steps_of_chunk = tile_chunk_bytes / tile_step_bytes;
/// Floats from a row of sums to the next.
inline constexpr std::int64_t tile_sums_stride = 256;

constexpr TileShapes whole_shapes() {
  TileShapes shapes;
  for (int t = 0; t < 8; ++t) shapes.set(t, 16, 64);
  return shapes;
}
inline constexpr TileShapes shapes_of_tile_sums = whole_shapes();

/// By the number of rows, at most sixteen.
struct ShapesOfRows {
  TileShapes of[17];
};
/// The first tiles have a line for each row; the others are whole, of panels.
constexpr ShapesOfRows shapes_by_rows(int tiles_of_rows) {
  ShapesOfRows shapes;
  for (int rows = 1; rows <= 16; ++rows)
    for (int t = 0; t < 8; ++t) shapes.of[rows].set(t, t < tiles_of_rows ? rows : 16, 64);
  return shapes;
}
/// Tiles 0 to 3 are sums, 4 is of the rows.
inline constexpr ShapesOfRows shapes_of_few_rows = shapes_by_rows(5);
/// By the number of rows, of which a line is a word of each: tile 0 is sums, 1 of a panel, whose lines are columns, 2 of the rows.
constexpr ShapesOfRows few_words_shapes() {
  ShapesOfRows shapes;
  for (int rows = 1; rows <= 16; ++rows)
    for (int t = 0; t < 3; ++t) shapes.of[rows].set(t, 16, t == 1 ? 64 : 4 * rows);
  return shapes;
}
inline constexpr ShapesOfRows shapes_of_few_words = few_words_shapes();

/// Rows that are multiplied with some panels, and how far it is from a chunk of each to the next: none where the next one takes its place.
struct TileBlock {
  const std::uint8_t* a;
  std::int64_t a_chunk;
  const std::uint8_t* const* weights;
  std::int64_t weights_chunk;
  float* sums;
  std::int64_t sums_row = tile_sums_stride;  ///< floats from a row of sums to the next
  bool from_zero = false;                    ///< whatever sums are before
};

/// Tile c += that of rows, a, times that of a panel, w.
template <class Unit, TileDots dots, int c, int a, int w>
DODONA_INLINE void dot_tiles() {
  if constexpr (dots == TileDots::unsigned_panels) {
    Unit::template dot_su<c, a, w>();
  } else if constexpr (dots == TileDots::signed_lines) {
    Unit::template dot_ss<c, w, a>();
  } else if constexpr (dots == TileDots::pairs) {
    Unit::template dot_bf16<c, a, w>();
  } else {
    Unit::template dot_bf16<c, w, a>();
  }
}

template <class Unit, int t>
DODONA_INLINE void begin_tile(const TileBlock& block, const float* sums) {
  block.from_zero ? Unit::template zero<t>() : Unit::template load<t>(sums, block.sums_row * 4);
}

/// begin(step), which may say that steps end here.
template <class Begin>
DODONA_INLINE bool begins(const Begin& begin, std::int64_t step) {
  if constexpr (std::is_void_v<decltype(begin(step))>) {
    begin(step);
    return true;
  } else {
    return begin(step);
  }
}

/// Three or four sixteens of rows and one panel, which is read once for all of them. Steps from `first` on; how far they went.
template <class Unit, TileDots dots, int sixteens, class Begin>
std::int64_t add_tall_tiles(const TileBlock& block, std::int64_t steps, const Begin& begin, std::int64_t first = 0) {
  const std::int64_t row_bytes = block.sums_row * 4;
  const auto each = [&]<int... i>(std::integer_sequence<int, i...>) {
    (begin_tile<Unit, i>(block, block.sums + 16 * i * block.sums_row), ...);
    std::int64_t s = first;
    for (; s < steps && begins(begin, s); ++s) {
      const std::int64_t chunk = s / steps_of_chunk, at = s % steps_of_chunk * tile_step_bytes;
      const std::uint8_t* const a = block.a + chunk * block.a_chunk + at;
      Unit::template load<4>(block.weights[0] + chunk * block.weights_chunk + at, 64);
      ((Unit::template load<5 + i % 3>(a + i * tile_chunk_bytes, 64), dot_tiles<Unit, dots, i, 5 + i % 3, 4>()), ...);
    }
    (Unit::template store<i>(block.sums + 16 * i * block.sums_row, row_bytes), ...);
    return s;
  };
  return each(std::make_integer_sequence<int, sixteens>());
}

/// sums[16 * sixteens][16 * panels] += rows times panels. Tiles 0 to 3 are sums of sixteen rows with a panel; rows and panels share the
/// other four. What a step needs is loaded before it is multiplied, as far as there are tiles; before that begin(step). Steps from `first`
/// on; how far they went.
template <class Unit, TileDots dots, int sixteens, int panels, class Begin>
std::int64_t add_tiles(const TileBlock& block, std::int64_t steps, const Begin& begin, std::int64_t first = 0) {
  static_assert(sixteens <= 2 && panels <= 4 / sixteens);
  const std::int64_t row_bytes = block.sums_row * 4;
  constexpr int of_weights = 4 + sixteens, at_once = panels < 8 - of_weights ? panels : 8 - of_weights;
  const auto each = [&]<int... p, int... later>(std::integer_sequence<int, p...>, std::integer_sequence<int, later...>) {
    const auto sums = [&](int i, int panel) { return block.sums + 16 * i * block.sums_row + 16 * panel; };
    (begin_tile<Unit, p>(block, sums(0, p)), ...);
    if constexpr (sixteens == 2) (begin_tile<Unit, panels + p>(block, sums(1, p)), ...);
    std::int64_t s = first;
    for (; s < steps && begins(begin, s); ++s) {
      const std::int64_t chunk = s / steps_of_chunk, at = s % steps_of_chunk * tile_step_bytes;
      const std::uint8_t* const a = block.a + chunk * block.a_chunk + at;
      const std::int64_t weights_at = chunk * block.weights_chunk + at;
      Unit::template load<4>(a, 64);
      if constexpr (sixteens == 2) Unit::template load<5>(a + tile_chunk_bytes, 64);
      ((p < at_once ? Unit::template load<of_weights + p % at_once>(block.weights[p] + weights_at, 64) : void()), ...);
      ((p < at_once ? dot_tiles<Unit, dots, p, 4, of_weights + p % at_once>() : void()), ...);
      if constexpr (sixteens == 2) (dot_tiles<Unit, dots, panels + p, 5, of_weights + p>(), ...);
      ((Unit::template load<of_weights + later>(block.weights[at_once + later] + weights_at, 64),
        dot_tiles<Unit, dots, at_once + later, 4, of_weights + later>()),
       ...);
    }
    (Unit::template store<p>(sums(0, p), row_bytes), ...);
    if constexpr (sixteens == 2) (Unit::template store<panels + p>(sums(1, p), row_bytes), ...);
    return s;
  };
  return each(std::make_integer_sequence<int, panels>(), std::make_integer_sequence<int, panels - at_once>());
}

/// Of how many steps add_rows calls begin.
DODONA_INLINE std::int64_t turns_of_rows(std::int64_t rows, std::int64_t panels, std::int64_t steps) {
  return (rows / 32 * ((panels + 1) / 2) + (rows % 32 > 16 ? (panels + 1) / 2 : rows % 32 > 0 ? (panels + 3) / 4 : 0)) * steps;
}
/// Any number of rows and of panels, as many of both together as there are tiles, but panels at most `most`:
/// body.operator()<sixteens, panels>(row, panel).
template <int most = 4, class Body>
void in_tiles(std::int64_t rows, std::int64_t panels, const Body& body) {
  for (std::int64_t r = 0; r < rows; r += 32) {
    if (rows - r > 16) {
      for (std::int64_t p = 0; p < panels; p += 2)
        panels - p > 1 ? body.template operator()<2, 2>(r, p) : body.template operator()<2, 1>(r, p);
      continue;
    }
    for (std::int64_t p = 0; p < panels; p += most) switch (panels - p) {
        case 1: body.template operator()<1, 1>(r, p); break;
        case 2: body.template operator()<1, 2>(r, p); break;
        case 3: body.template operator() < 1, most<3 ? most : 3>(r, p); break;
        default: body.template operator()<1, most>(r, p);
      }
  }
}
/// Any number of rows times any of panels, at most a chunk of K.
template <class Unit, TileDots dots, class Begin>
void add_rows(const TileBlock& all, std::int64_t rows, std::int64_t panels, std::int64_t steps, const Begin& begin) {
  in_tiles(rows, panels, [&]<int sixteens, int together>(std::int64_t r, std::int64_t p) {
    TileBlock block = all;
    block.a += r / 16 * tile_chunk_bytes;
    block.weights += p;
    block.sums += r * block.sums_row + 16 * p;
    add_tiles<Unit, dots, sixteens, together>(block, steps, begin);
  });
}

/// Sums of sixteen rows and a panel that were turned, or other words of sixteen lines.
DODONA_INLINE void turn_back(float* sums, std::int64_t sums_row = tile_sums_stride) {
  f32x16 lines[16];
  DODONA_UNROLL(16)
  for (int i = 0; i < 16; ++i) lines[i] = f32x16::load(sums + i * sums_row);
  transpose(lines);
  DODONA_UNROLL(16)
  for (int i = 0; i < 16; ++i) lines[i].store(sums + i * sums_row);
}

}  // namespace dodona::DODONA_TIER
