// How far ahead raw weights are fetched before they are transposed. Included by *.simd.cpp only.
#pragma once

#include "ops/tiles/panel_i8/panel_i8.h"

namespace dodona::DODONA_TIER {

/// Columns of a tile's panels.
inline constexpr std::int64_t columns_of_tile = ops::i8_tile_panels * ops::i8_panel_columns;

/// Bytes from byte `at` of a row of `stride` bytes to what is fetched: rows of a panel are sixteen streams that no hardware follows. Beyond
/// the end of a row it is where that begins which is so many `columns` further, or nothing that a fetch would fault on.
DODONA_INLINE std::int64_t fetch_distance(std::int64_t at, std::int64_t stride, std::int64_t columns = columns_of_tile) {
  constexpr std::int64_t ahead = 128;
  return ahead + (at + ahead >= stride ? (columns - 1) * stride : 0);
}

/// Raw columns of a panel that is packed pair of panels after pair, `stride` bytes each, of which `at` are done: of the pair that comes
/// next as many lines as the sixteen columns have, one after the other in the order of memory. They wait in a second-level cache.
DODONA_INLINE void fetch_next_pair(const std::uint8_t* codes, std::int64_t stride, std::int64_t panel, std::int64_t at, int line) {
  const std::int64_t next = (panel * ops::i8_panel_columns + columns_of_tile) * stride;
  __builtin_prefetch(codes + next + ops::i8_panel_columns * at + 64 * line, 0, 2);
}

}  // namespace dodona::DODONA_TIER
