// Weights of four bits for sums of integers: packed as they are, and looked up as unsigned bytes on the way. Included by *.simd.cpp only.
//
// Half of a step of a packed panel is four vectors of codes: lane r of vector v holds the four bytes of column r with k = 8v..8v+7. So
// within every eight k the even ones come first, and rows of A are ordered like that.
#pragma once

#include "ops/tiles/panel_i8/panel_i8.h"
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

/// Sixteen raw columns, of which memory is asked for what comes so many bytes behind byte `at`.
struct ColumnsAhead {
  const std::uint8_t* from;
  std::int64_t stride;
  DODONA_INLINE void operator()(int column) const { __builtin_prefetch(from + column * stride); }
};
/// Where columns end, it is where those begin that are so many `columns` further.
DODONA_INLINE ColumnsAhead columns_ahead(const ops::I8Weights& w, std::int64_t panel, std::int64_t s, std::int64_t columns) {
  const std::int64_t stride = w.k / 2, at = s * (ops::i8_step / 2);
  return {w.codes + panel * ops::i8_panel_columns * stride + at + fetch_distance(at, stride, columns), stride};
}
/// Steps s and s + 1 of a panel of raw weights: words 0 to 7 are those of the first as they are packed.
DODONA_INLINE void words_of_steps(const ops::I8Weights& w, std::int64_t panel, std::int64_t s, i32x16 (&words)[16]) {
  const std::int64_t stride = w.k / 2, left = (w.k - s * ops::i8_step) / 8;
  const std::int64_t first = panel * ops::i8_panel_columns, last = w.n - 1 - first;
  const std::uint8_t* const from = w.codes + first * stride + s * (ops::i8_step / 2);
  const auto column = [&](std::int64_t r) { return reinterpret_cast<const std::int32_t*>(from + r * stride); };
  if (left >= 16 && last >= 15) {
    DODONA_UNROLL(16)
    for (int r = 0; r < 16; ++r) words[r] = i32x16::load(column(r));
  } else {
    for (int r = 0; r < 16; ++r) words[r] = i32x16::load_partial(column(r < last ? r : last), left);
  }
  transpose(words);
}

/// Steps [begin, end) of a panel of raw weights to `out`, `step_bytes` a step, bits of `flipped` flipped; rest(s, to) adds what else step s
/// has. See fetch_next_pair for `by_pairs`; other panels are packed beside many, a part of K of them all after the other.
template <std::int64_t step_bytes, std::uint32_t flipped = 0, class Rest>
DODONA_INLINE void pack_nibbles_of(const ops::I8Weights& w, std::int64_t panel, std::int64_t begin, std::int64_t end, bool by_pairs,
                                   std::uint8_t* out, const Rest& rest) {
  for (std::int64_t s = begin; s < end; s += 2) {
    const ColumnsAhead ahead = columns_ahead(w, panel, s, columns_of_tile);
    DODONA_UNROLL(16)
    for (int column = 0; column < 16; ++column) {
      ahead(column);
      if (by_pairs) fetch_next_pair(w.codes, w.k / 2, panel, s * (ops::i8_step / 2), column);
    }
    i32x16 words[16];
    words_of_steps(w, panel, s, words);
    for (std::int64_t i = 0; i < 2 && s + i < end; ++i) {
      std::uint8_t* const to = out + (s + i - begin) * step_bytes;
      DODONA_UNROLL(8)
      for (int v = 0; v < 8; ++v)
        (words[8 * i + v] ^ i32x16::splat(static_cast<std::int32_t>(flipped))).store(reinterpret_cast<std::int32_t*>(to + 64 * v));
      rest(s + i, to + 512);
    }
  }
}

}  // namespace dodona::DODONA_TIER
