// QServe's weights for sums of integers: unsigned nibbles in tiles of 32 columns x 32 k, see quant/qserve.h. Included by *.simd.cpp only.
// A step of a packed panel has eight vectors of codes: lane r of vector u holds the four bytes of column r with k = 8u..8u+3 in the low
// nibbles, and with k = 8u+4..8u+7 in the high ones.
#pragma once

#include "ops/tiles/panel_i8.h"
#include "ops/tiles/unpack/int8.h"

namespace dodona::DODONA_TIER {

DODONA_INLINE i32x16 low_codes(i32x16 codes) {
  return codes & i32x16::splat(0x0F0F0F0F);
}
DODONA_INLINE i32x16 high_codes(i32x16 codes) {
  return shr<4>(codes) & i32x16::splat(0x0F0F0F0F);
}

/// Step `s` of one or two panels to eight vectors each, `stride` bytes apart. A tile has eight lines of 64 bytes, line c for columns c and
/// 8 + c of both panels of the tile, in whose low and high nibbles they are: words of four k, 4 * (k / 4 mod 4) + 2 * (k / 16 mod 2) +
/// (1 for column 8 + c).
DODONA_INLINE void pack_qserve_codes(const ops::I8Weights& w, std::int64_t panel, std::int64_t panels, std::int64_t s, std::uint8_t* out,
                                     std::int64_t stride) {
  constexpr std::int64_t tile_bytes = 512, ahead = 4 * tile_bytes;
  const std::uint8_t* const tile = w.codes + (panel / 2 * (w.k / 32) + 2 * s) * tile_bytes;
  f32x16 lines[16];
  DODONA_UNROLL(8)
  for (int c = 0; c < 8; ++c) {
    __builtin_prefetch(tile + 64 * c + ahead);
    __builtin_prefetch(tile + 64 * c + tile_bytes + ahead);
    const f32x16_pair split = deinterleave(as_f32(load_bytes(tile + 64 * c)), as_f32(load_bytes(tile + tile_bytes + 64 * c)));
    lines[c] = split.first;
    lines[8 + c] = split.second;
  }
  transpose(lines);  // vector 8 * tile + 2 * (k / 4 mod 4) + k / 16 mod 2
  for (std::int64_t p = panel; p < panel + panels; ++p, out += stride) {
    DODONA_UNROLL(8)
    for (int u = 0; u < 8; ++u) {
      const int first = u / 4 * 8 + (u % 2 * 2) * 2 + u % 4 / 2;
      const i32x16 even = as_i32(lines[first]), odd = as_i32(lines[first + 2]);
      const i32x16 codes = p % 2 == 0 ? low_codes(even) | shl<4>(low_codes(odd)) : high_codes(even) | shl<4>(high_codes(odd));
      codes.store(reinterpret_cast<std::int32_t*>(out + 64 * u));
    }
  }
}

/// Weights as they are, 0 to 15.
struct QserveUnpack {
  static constexpr std::int64_t step_bytes = 512, panels_together = 2;
  static constexpr int offset = 0;

  static DODONA_INLINE i32x16 table() { return i32x16::zero(); }
  static DODONA_INLINE void decode(const std::uint8_t* packed, int block, i32x16, i32x16 (&weights)[4]) {
    const i32x16 first = load_bytes(packed + 128 * block), second = load_bytes(packed + 128 * block + 64);
    weights[0] = low_codes(first);
    weights[1] = high_codes(first);
    weights[2] = low_codes(second);
    weights[3] = high_codes(second);
  }
  // 8 * 15 * 128 fits in 16 bits.
  static DODONA_INLINE i32x16 dot(i32x16 sum, const i32x16 (&weights)[4], const i32x16 (&row)[4]) { return dot16_small(sum, weights, row); }

  static void pack(const ops::I8Weights& w, std::int64_t panel, std::int64_t panels, std::int64_t begin, std::int64_t end,
                   std::uint8_t* out) {
    for (std::int64_t s = begin; s < end; ++s)
      pack_qserve_codes(w, panel, panels, s, out + (s - begin) * step_bytes, (end - begin) * step_bytes);
  }
  static DODONA_INLINE f32x16_pair row(const std::uint8_t* codes, std::int64_t begin, std::int64_t k) {
    return Int8Unpack::row(codes, begin, k);
  }
};

/// Weights (code * scale + zero) mod 256 as signed bytes, a scale and a zero for each column and 128 k; decoded plus 128. A step ends with
/// a word for each column: the scale in its first byte, the zero in its second.
struct QserveGroupUnpack {
  static constexpr std::int64_t step_bytes = 576, panels_together = 2;
  static constexpr int offset = 128;

  static DODONA_INLINE i32x16 table() { return i32x16::zero(); }
  static DODONA_INLINE void decode(const std::uint8_t* packed, int block, i32x16 table, i32x16 (&weights)[4]) {
    const i32x16 words = load_bytes(packed + 512), byte = i32x16::splat(0xFF);
    const i32x16 scale = (words & byte) * i32x16::splat(0x00010001);
    const i32x16 zero_plus_128 = ((shr<8>(words) & byte) ^ i32x16::splat(0x80)) * i32x16::splat(0x01010101);
    QserveUnpack::decode(packed, block, table, weights);
    // A product is at most 15 * 17: none reaches the byte beside it.
    DODONA_UNROLL(4)
    for (int i = 0; i < 4; ++i) weights[i] = add_8(mul_16(weights[i], scale), zero_plus_128);
  }
  static DODONA_INLINE i32x16 dot(i32x16 sum, const i32x16 (&weights)[4], const i32x16 (&row)[4]) {
    return Int8Unpack::dot(sum, weights, row);
  }

  static void pack(const ops::I8Weights& w, std::int64_t panel, std::int64_t panels, std::int64_t begin, std::int64_t end,
                   std::uint8_t* out) {
    for (std::int64_t s = begin; s < end; ++s)
      pack_qserve_codes(w, panel, panels, s, out + (s - begin) * step_bytes, (end - begin) * step_bytes);
    for (std::int64_t p = panel; p < panel + panels; ++p, out += (end - begin) * step_bytes)
      for (std::int64_t s = begin; s < end; s = s / 2 * 2 + 2) pack_scales(w, p, s, end, out + (s - begin) * step_bytes + 512);
  }
  static DODONA_INLINE f32x16_pair row(const std::uint8_t* codes, std::int64_t begin, std::int64_t k) {
    return Int8Unpack::row(codes, begin, k);
  }

 private:
  /// Scales and zeros of the 128 k of step s, for it and for the other one of them where that comes before `end`.
  static DODONA_INLINE void pack_scales(const ops::I8Weights& w, std::int64_t panel, std::int64_t s, std::int64_t end, std::uint8_t* to) {
    // A word has channels i, 8 + i, 16 + i and 24 + i of 32 (quant::qserve_scale_position): two of them are of this panel.
    const std::int64_t first = panel * ops::i8_panel_columns, at = s / 2 * w.n + first / 32 * 32;
    const int shift = static_cast<int>(first % 32);
    std::uint32_t scales[8], zeros[8], words[16];
    __builtin_memcpy(scales, w.scales + at, sizeof scales);
    __builtin_memcpy(zeros, w.zeros + at, sizeof zeros);
    for (int r = 0; r < 8; ++r) {
      words[r] = (scales[r] >> shift & 0xFF) | (zeros[r] >> shift & 0xFF) << 8;
      words[8 + r] = (scales[r] >> shift >> 8 & 0xFF) | (zeros[r] >> shift >> 8 & 0xFF) << 8;
    }
    __builtin_memcpy(to, words, sizeof words);
    if (s % 2 == 0 && s + 1 < end) __builtin_memcpy(to + step_bytes, words, sizeof words);
  }
};

}  // namespace dodona::DODONA_TIER
