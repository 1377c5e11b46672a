// NVFP4 for sums of integers: doubled e2m1 codes, weights plus 12 as unsigned bytes. Included by *.simd.cpp only.
//
// A step of a packed panel is 576 bytes: codes as in nibbles.h, then the scales of four blocks, 16 columns each. 4.5 bits a weight, read in
// one stream.
#pragma once

#include "ops/tiles/unpack/nibbles.h"
#include "simd/convert.h"
#include "simd/pack.h"

namespace dodona::DODONA_TIER {

/// 16 bytes, four times over: twice the value of every e2m1 code, plus `offset`.
constexpr ByteTable doubled_codes(int offset) {
  constexpr int magnitude[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  ByteTable table{};
  for (int i = 0; i < 64; ++i) table.bytes[i] = static_cast<std::uint8_t>(offset + (i & 8 ? -1 : 1) * magnitude[i & 7]);
  return table;
}

/// Four scales of each of a panel's columns, the first in the low byte: column `tile` of tiles of 128 x 4 scales, which keep row r at
/// (r mod 32)*16 + (r/32)*4, for a matrix of `blocks` columns.
DODONA_INLINE i32x16 scale_words(const ops::I8Weights& w, std::int64_t panel, std::int64_t blocks, std::int64_t tile) {
  const std::int64_t row = panel * ops::i8_panel_columns;
  const std::int64_t tiles = (blocks + 3) / 4, group = row / 128;
  const std::uint8_t* const from = w.scales + (group * tiles + tile) * 512 + row % 32 * 16;
  // Eight panels read the same tiles: each asks memory for an eighth of those that the next eight will read.
  __builtin_prefetch(w.scales + (group + 1) * tiles * 512 + (row % 128 / ops::i8_panel_columns * tiles + tile) * 64, 0, 2);
  f32x16 fours[4];  // of four rows each, all four of what lies 32 rows apart
  DODONA_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    fours[i] = as_f32(load_bytes(from + 64 * i));
    __builtin_prefetch(from + 1024 + 64 * i);
  }
  const auto pick = [](f32x16 a, f32x16 b, bool odd) {
    const f32x16_pair split = deinterleave(a, b);
    return odd ? split.second : split.first;
  };
  const auto which = static_cast<unsigned>(row % 128 / 32);
  return as_i32(pick(pick(fours[0], fours[1], which & 1), pick(fours[2], fours[3], which & 1), which & 2));
}

struct Nvfp4Unpack {
  static constexpr std::int64_t step_bytes = 576, panels_together = 1;
  static constexpr int offset = 12;
  static constexpr ByteTable signed_table = doubled_codes(0), offset_table = doubled_codes(offset);

  static DODONA_INLINE i32x16 table() { return load_bytes(offset_table.bytes); }
  static DODONA_INLINE void decode(const std::uint8_t* packed, int block, i32x16 table, i32x16 (&weights)[4]) {
    decode_nibbles(packed, block, table, weights);
  }
  static DODONA_INLINE f32x16 scales(const std::uint8_t* packed, int block) { return load_e4m3(packed + 512 + 16 * block); }
  static DODONA_INLINE i32x16 dot(i32x16 sum, const i32x16 (&weights)[4], const i32x16 (&row)[4]) { return dot16_small(sum, weights, row); }

  static void pack(const ops::I8Weights& w, std::int64_t panel, std::int64_t, std::int64_t begin, std::int64_t end, bool by_pairs,
                   std::uint8_t* out) {
    pack_nibbles_of<step_bytes>(w, panel, begin, end, by_pairs, out, [&](std::int64_t s, std::uint8_t* to) {
      scales_of_step(w, panel, s).store(reinterpret_cast<std::int32_t*>(to));
    });
  }

  /// 128 elements of a row from `begin` on, those beyond k zero: k 0..63, then 64..127, in the order of decoded weights.
  static DODONA_INLINE f32x16_pair row(const std::uint8_t* codes, std::int64_t begin, std::int64_t k) {
    const i32x16 table = load_bytes(signed_table.bytes);
    // Bytes that do not exist are code zero, and so zeros.
    const i32x16 raw = i32x16::load_partial(reinterpret_cast<const std::int32_t*>(codes + begin / 2), (k - begin) / 8);
    return interleave(as_f32(low_nibbles(table, raw)), as_f32(high_nibbles(table, raw)));
  }

  /// Scales of blocks 4s..4s+3 of a raw panel's columns as they are packed, 4 x 16 bytes.
  static DODONA_INLINE i32x16 scales_of_step(const ops::I8Weights& w, std::int64_t panel, std::int64_t s) {
    const std::int64_t blocks = w.k / ops::i8_block;
    i32x16 words = scale_words(w, panel, blocks, s);
    // Half a step at the end: the scales beyond are padding of any content.
    if (blocks - s * 4 < 4) words = words & i32x16::splat(0xFFFF);
    return bytes_by_place(words);
  }
};

/// MXFP4: a step has two scales, of thirty-two k each, and 32 bytes of zeros.
struct Mxfp4Unpack : Nvfp4Unpack {
  static DODONA_INLINE f32x16 scales(const std::uint8_t* packed, int block) {
    return as_f32(shl<23>(load_u8(packed + 512 + 16 * (block / 2))));
  }
  static void pack(const ops::I8Weights& w, std::int64_t panel, std::int64_t, std::int64_t begin, std::int64_t end, bool by_pairs,
                   std::uint8_t* out) {
    pack_nibbles_of<step_bytes>(w, panel, begin, end, by_pairs, out, [&](std::int64_t s, std::uint8_t* to) {
      scales_of_step(w, panel, s).store(reinterpret_cast<std::int32_t*>(to));
    });
  }

  static DODONA_INLINE i32x16 scales_of_step(const ops::I8Weights& w, std::int64_t panel, std::int64_t s) {
    const std::int64_t blocks = w.k / 32;
    const i32x16 four = scale_words(w, panel, blocks, s / 2);
    i32x16 words = s % 2 == 0 ? four : shr<16>(four);
    words = words & i32x16::splat(blocks - s * 2 < 2 ? 0xFF : 0xFFFF);
    return bytes_by_place(words);
  }
};

}  // namespace dodona::DODONA_TIER
