// How far ahead raw weights are fetched before they are transposed. Included by *.simd.cpp only.
#pragma once

#include "ops/tiles/panel_i8.h"

namespace dodona::DODONA_TIER {

/// Bytes from byte `at` of a row of `stride` bytes to what is fetched: rows of a panel are sixteen streams that no hardware follows. Beyond
/// the end of a row it is where the next tile's begins, or nothing that a fetch would fault on.
DODONA_INLINE std::int64_t fetch_distance(std::int64_t at, std::int64_t stride) {
  constexpr std::int64_t ahead = 256;
  const bool last = at + ahead >= stride;
  return ahead + (last ? (ops::i8_tile_panels * ops::i8_panel_columns - 1) * stride : 0);
}

}  // namespace dodona::DODONA_TIER
