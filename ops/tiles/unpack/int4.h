// Signed nibbles as operands of panels, in fp32, and as weights of sums of integers. Included by *.simd.cpp only.
#pragma once

#include "ops/tiles/unpack/nibbles.h"
#include "ops/tiles/unpack/unpack.h"

namespace dodona::DODONA_TIER {

constexpr ByteTable nibbles_plus_8() {
  ByteTable table{};
  for (int i = 0; i < 64; ++i) table.bytes[i] = static_cast<std::uint8_t>((i + 8) & 15);
  return table;
}

/// Two a byte, even k in the low nibble.
struct I4Unpack {
  static constexpr int bits = 4;
  static constexpr float left_out = 1.0f;
  static DODONA_INLINE f32x16 load(const std::byte* p) { return load_partial(p, 16); }
  static DODONA_INLINE f32x16 load_partial(const std::byte* p, std::int64_t n) {
    std::int32_t values[16] = {};
    for (std::int64_t i = 0; i < n && i < 16; ++i) {
      const auto code = static_cast<std::int32_t>(p[i / 2]) >> i % 2 * 4 & 15;
      values[i] = (code ^ 8) - 8;
    }
    return to_f32(i32x16::load(values));
  }
  static void columns(const Columns& from, std::int64_t k, float* to, std::int64_t to_k) {
    const std::int64_t whole = from.count == 16 ? k / 8 * 8 : 0;
    for (std::int64_t begin = 0; begin < whole; begin += 128) columns_by_words(from, begin, whole - begin, to + begin * to_k, to_k);
    if (whole < k) columns_by_transposing<I4Unpack>({from.first + whole / 2, from.stride, from.count}, k - whole, to + whole * to_k, to_k);
  }

 private:
  /// At most 128 of each of sixteen columns: lanes of eight are transposed, and then taken apart.
  static DODONA_INLINE void columns_by_words(const Columns& from, std::int64_t begin, std::int64_t k, float* to, std::int64_t to_k) {
    const std::int64_t words = k / 8;
    i32x16 eights[16];
    DODONA_UNROLL(16)
    for (int j = 0; j < 16; ++j) {
      const auto* p = reinterpret_cast<const std::int32_t*>(from.first + j * from.stride + begin / 2);
      eights[j] = words >= 16 ? i32x16::load(p) : i32x16::load_partial(p, words);
    }
    transpose(eights);
    DODONA_UNROLL(16)
    for (int w = 0; w < 16; ++w) {
      if (w >= words) break;
      i32x16 left = eights[w];
      DODONA_UNROLL(8)
      for (int i = 0; i < 8; ++i) {
        to_f32(sra<28>(shl<28>(left))).store(to + (8 * w + i) * to_k);
        left = shr<4>(left);
      }
    }
  }
};

/// Words of eight codes in lanes, for products of few rows (panel_few.h): a code stays where it lies in its half of the word, as part of
/// the mantissa of 2^23, and so is value * 16^(i mod 4), exactly. Rows take the power of 1/16.
struct I4Fields {
  static constexpr int bits = 4, per_word = 8;
  static constexpr bool is_packed = false;
  static constexpr float sums_take = 1.0f;
  static DODONA_INLINE i32x16 nan_bytes(i32x16) { return i32x16::zero(); }

  struct Word {
    i32x16 first, last;  ///< four codes in the low half of a lane
  };
  static DODONA_INLINE Word word(i32x16 codes) { return {codes, shr<16>(codes)}; }
  template <bool restoring>
  static DODONA_INLINE f32x16 value(const Word& w, int i) {
    const int at = 4 * (i % 4);
    // The sign is flipped: codes plus 8.
    const i32x16 field = ((i < 4 ? w.first : w.last) & i32x16::splat(15 << at)) ^ i32x16::splat(0x4B000000 | 8 << at);
    return as_f32(field) - f32x16::splat(8388608.0f + static_cast<float>(8 << at));
  }
  /// k is a multiple of sixteen.
  static DODONA_INLINE void scale_row(float* row, std::int64_t k) {
    constexpr float powers[16] = {1, 0x1p-4f, 0x1p-8f, 0x1p-12f, 1, 0x1p-4f, 0x1p-8f, 0x1p-12f,
                                  1, 0x1p-4f, 0x1p-8f, 0x1p-12f, 1, 0x1p-4f, 0x1p-8f, 0x1p-12f};
    const f32x16 factors = f32x16::load(powers);
    for (std::int64_t i = 0; i < k; i += 16) (f32x16::load(row + i) * factors).store(row + i);
  }
};

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

  static void pack(const ops::I8Weights& w, std::int64_t panel, std::int64_t, std::int64_t begin, std::int64_t end, std::uint8_t* out) {
    pack_nibbles_of<step_bytes>(w, panel, begin, end, out, [](std::int64_t, std::uint8_t*) {});
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
