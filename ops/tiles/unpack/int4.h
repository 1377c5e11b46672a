// Signed nibbles as weights of sums of integers. Included by *.simd.cpp only.
#pragma once

#include "ops/tiles/unpack/nibbles.h"

namespace dodona::DODONA_TIER {

constexpr ByteTable nibbles_plus_8() {
  ByteTable table{};
  for (int i = 0; i < 64; ++i) table.bytes[i] = static_cast<std::uint8_t>((i + 8) & 15);
  return table;
}

/// Values plus 8 as unsigned bytes; rows are signed bytes. A step of a packed panel is 512 bytes of codes as in nibbles.h.
struct Int4Unpack {
  static constexpr std::int64_t step_bytes = 512, panels_together = 1;
  static constexpr int offset = 8;
  static constexpr ByteTable offset_table = nibbles_plus_8();

  static DODONA_INLINE i32x16 table() { return load_bytes(offset_table.bytes); }
  static DODONA_INLINE void decode(const std::uint8_t* packed, int block, i32x16 table, i32x16 (&weights)[4]) {
    decode_nibbles(packed, block, table, weights);
  }
  // 8 * 15 * 128 fits in 16 bits.
  static DODONA_INLINE i32x16 dot(i32x16 sum, const i32x16 (&weights)[4], const i32x16 (&row)[4]) { return dot16_small(sum, weights, row); }

  static void pack(const ops::I8Weights& w, std::int64_t panel, std::int64_t, std::int64_t begin, std::int64_t end, bool by_pairs,
                   std::uint8_t* out) {
    pack_nibbles_of<step_bytes>(w, panel, begin, end, by_pairs, out, [](std::int64_t, std::uint8_t*) {});
  }

  /// See Nvfp4Unpack: of every eight bytes the even ones, then the odd ones.
  static DODONA_INLINE f32x16_pair row(const std::uint8_t* codes, std::int64_t begin, std::int64_t k) {
    return {half(codes + begin, k - begin), half(codes + begin + 64, k - begin - 64)};
  }

 private:
  static DODONA_INLINE f32x16 half(const std::uint8_t* codes, std::int64_t left) {
    std::int8_t bytes[64];
    for (int i = 0; i < 64; ++i) {
      const int from = i / 8 * 8 + (i % 4) * 2 + (i % 8) / 4;
      bytes[i] = from < left ? static_cast<std::int8_t>(codes[from]) : std::int8_t{0};
    }
    return as_f32(load_bytes(bytes));
  }
};

}  // namespace dodona::DODONA_TIER
