// Weights of four bits for sums of integers: packed as they are, and looked up as unsigned bytes on the way. Included by *.simd.cpp only.
//
// Half of a step of a packed panel is four vectors of codes: lane r of vector v holds the four bytes of column r with k = 8v..8v+7. So
// within every eight k the even ones come first, and rows of A are ordered like that.
#pragma once

#include "ops/tiles/panel_i8.h"
#include "ops/tiles/unpack/fetch.h"
#include "simd/dot_i8.h"
#include "simd/registers.h"

namespace dodona::DODONA_TIER {

struct ByteTable {
  alignas(64) std::uint8_t bytes[64];
};

/// Codes of even k, or of odd k, looked up.
DODONA_INLINE i32x16 low_nibbles(i32x16 table, i32x16 codes) {
  return lookup_bytes(table, codes & i32x16::splat(0x0F0F0F0F));
}
DODONA_INLINE i32x16 high_nibbles(i32x16 table, i32x16 codes) {
  return lookup_bytes(table, shr<4>(codes) & i32x16::splat(0x0F0F0F0F));
}

/// Block `block` of a step, looked up.
DODONA_INLINE void decode_nibbles(const std::uint8_t* packed, int block, i32x16 table, i32x16 (&weights)[4]) {
  const i32x16 first = load_bytes(packed + 128 * block), second = load_bytes(packed + 128 * block + 64);
  weights[0] = low_nibbles(table, first);
  weights[1] = high_nibbles(table, first);
  weights[2] = low_nibbles(table, second);
  weights[3] = high_nibbles(table, second);
}

/// Steps [begin, end) of a panel of raw weights to `out`, `step_bytes` a step, bits of `flipped` flipped; rest(s, to) adds what else step s
/// has. A transposition takes two steps; what follows is fetched, unless the caller does.
template <std::int64_t step_bytes, std::uint32_t flipped = 0, bool fetching = true, class Rest>
DODONA_INLINE void pack_nibbles_of(const ops::I8Weights& w, std::int64_t panel, std::int64_t begin, std::int64_t end, std::uint8_t* out,
                                   const Rest& rest) {
  const std::int64_t stride = w.k / 2;
  const std::uint8_t* rows = w.codes + panel * ops::i8_panel_columns * stride;
  const std::int64_t last_row = w.n - 1 - panel * ops::i8_panel_columns;
  for (std::int64_t s = begin; s < end; s += 2) {
    const std::int64_t words = (w.k - s * ops::i8_step) / 8;
    [[maybe_unused]] const std::int64_t ahead = fetch_distance(s * (ops::i8_step / 2), stride);
    f32x16 lanes_of_rows[16];
    DODONA_UNROLL(16)
    for (int r = 0; r < 16; ++r) {
      const std::uint8_t* p = rows + (r < last_row ? r : last_row) * stride + s * (ops::i8_step / 2);
      if constexpr (fetching) __builtin_prefetch(p + ahead);
      const auto* p32 = reinterpret_cast<const std::int32_t*>(p);
      lanes_of_rows[r] = as_f32(words >= 16 ? i32x16::load(p32) : i32x16::load_partial(p32, words));
    }
    transpose(lanes_of_rows);
    const auto store = [](f32x16 lanes_of_v, std::uint8_t* at) {
      (as_i32(lanes_of_v) ^ i32x16::splat(static_cast<std::int32_t>(flipped))).store(reinterpret_cast<std::int32_t*>(at));
    };
    std::uint8_t* to = out + (s - begin) * step_bytes;
    DODONA_UNROLL(8)
    for (int v = 0; v < 8; ++v) store(lanes_of_rows[v], to + 64 * v);
    rest(s, to + 512);
    if (s + 1 == end) break;
    DODONA_UNROLL(8)
    for (int v = 0; v < 8; ++v) store(lanes_of_rows[8 + v], to + step_bytes + 64 * v);
    rest(s + 1, to + step_bytes + 512);
  }
}

}  // namespace dodona::DODONA_TIER
