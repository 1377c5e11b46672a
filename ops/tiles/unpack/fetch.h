// How far ahead raw weights are fetched before they are transposed. Included by *.simd.cpp only.
#pragma once

#include "ops/tiles/panel_i8.h"

namespace dodona::DODONA_TIER {

/// Columns of a tile's panels.
inline constexpr std::int64_t columns_of_tile = ops::i8_tile_panels * ops::i8_panel_columns;

/// Bytes from byte `at` of a row of `stride` bytes to what is fetched: rows of a panel are sixteen streams that no hardware follows. Beyond
/// the end of a row it is where that begins which is so many `columns` further, or nothing that a fetch would fault on.
DODONA_INLINE std::int64_t fetch_distance(std::int64_t at, std::int64_t stride, std::int64_t columns = columns_of_tile) {
  constexpr std::int64_t ahead = 128;
  return ahead + (at + ahead >= stride ? (columns - 1) * stride : 0);
}

}  // namespace dodona::DODONA_TIER
