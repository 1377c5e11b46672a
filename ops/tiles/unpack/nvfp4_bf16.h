// NVFP4 as bf16, for matrix units that sum products of such: doubled e2m1 codes times their scales. Both have few digits, so each is exact,
// as all sums of a block of sixteen k are in fp32, in any order. Included by *.simd.cpp only.
//
// The order within a block is that of a word of packed codes (nibbles.h) whose halves are taken apart: k, k + 4, k + 1, k + 5, ...
//
// Weights are 2^-112 times what they are, and rows 2^112 times: then a weight's bits are those of an fp16 with its exponent three places
// lower, and vectors that have arithmetic in fp16 make 32 at a time.
#pragma once

#include "ops/tiles/unpack/nvfp4.h"

namespace dodona::DODONA_TIER {

struct FloatTable {
  alignas(64) float values[16];
};
/// Doubled values of all codes.
constexpr FloatTable doubled_codes_as_floats() {
  return {{0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12}};
}
/// The same as fp16, of which the low byte is zero: the high one, four times over.
constexpr ByteTable doubled_codes_as_halves() {
  constexpr std::uint8_t magnitude[8] = {0x00, 0x3C, 0x40, 0x42, 0x44, 0x46, 0x48, 0x4A};
  ByteTable table{};
  for (int i = 0; i < 64; ++i) table.bytes[i] = static_cast<std::uint8_t>(magnitude[i & 7] | (i & 8 ? 0x80 : 0));
  return table;
}

struct Nvfp4Bf16Unpack : Nvfp4Unpack {
  static constexpr FloatTable float_table = doubled_codes_as_floats();
  static constexpr ByteTable half_table = doubled_codes_as_halves();
  static constexpr float weights_by = 0x1p-112f, rows_by = 0x1p112f;

  /// A step of sixteen packed columns: for each pair of blocks sixteen lines of them, two k of each side by side. In bytes, how far the
  /// scales of pairs are apart: exponents of e4m3, denormals' as that of the least normal number.
  static DODONA_INLINE i32x16 decode_step(const std::uint8_t* packed, std::uint8_t* to) {
#if DODONA_TIER_v4_vnni
    const i32x16 all = load_bytes(packed + 512);
    if (!has_nan(all)) {
      decode_halves(packed, all, to);
      const i32x16 of_blocks{{_mm512_max_epu8((all & i32x16::splat(0x78787878)).v.v, _mm512_set1_epi8(8))}};
      const i32x16 others{{_mm512_shuffle_i32x4(of_blocks.v.v, of_blocks.v.v, 0xB1)}};
      return shr<3>(i32x16{{_mm512_subs_epu8(of_blocks.v.v, others.v.v)}} | i32x16{{_mm512_subs_epu8(others.v.v, of_blocks.v.v)}});
    }
#endif
    return decode_floats(packed, to);
  }

  /// 128 codes of a row, a word of eight in each lane, times the scales of these words: 32 k, in the order of decoded weights, in each.
  static DODONA_INLINE void row(i32x16 codes, f32x16 scales, i32x16 (&pairs)[4]) {
    i32x16 words[4];
    take_apart(codes, f32x16::load(float_table.values), scales * f32x16::splat(rows_by), words);
    const f32x16_pair even = interleave(as_f32(words[0]), as_f32(words[2])), odd = interleave(as_f32(words[1]), as_f32(words[3]));
    const f32x16_pair first = interleave(even.first, odd.first), last = interleave(even.second, odd.second);
    pairs[0] = as_i32(first.first), pairs[1] = as_i32(first.second), pairs[2] = as_i32(last.first), pairs[3] = as_i32(last.second);
  }

 private:
  static DODONA_INLINE void store(const i32x16 (&lines)[4], std::uint8_t* to) {
    DODONA_UNROLL(4)
    for (int i = 0; i < 4; ++i) lines[i].store(reinterpret_cast<std::int32_t*>(to + 64 * i));
  }
  /// k and k + 4 of every word of eight codes, for four k.
  static DODONA_INLINE void take_apart(i32x16 codes, f32x16 table, f32x16 scales, i32x16 (&words)[4]) {
    const auto both = [&](i32x16 first, i32x16 second) {
      return shr<16>(as_i32(lookup_16(table, first) * scales)) | as_i32(lookup_16(table, second) * scales);
    };
    words[0] = both(codes, shr<16>(codes));
    words[1] = both(shr<4>(codes), shr<20>(codes));
    words[2] = both(shr<8>(codes), shr<24>(codes));
    words[3] = both(shr<12>(codes), shr<28>(codes));
  }

  static inline i32x16 decode_floats(const std::uint8_t* packed, std::uint8_t* to) {
    const f32x16 table = f32x16::load(float_table.values);
    i32x16 exponents[4];
    for (int block = 0; block < 4; ++block) {
      const f32x16 of_block = scales(packed, block) * f32x16::splat(weights_by);
      exponents[block] = max(load_u8(packed + 512 + 16 * block) & i32x16::splat(15 << 3), i32x16::splat(1 << 3));
      for (int half = 0; half < 2; ++half) {
        i32x16 lines[4];
        take_apart(load_bytes(packed + 128 * block + 64 * half), table, of_block, lines);
        store(lines, to + 512 * block + 256 * half);
      }
    }
    const auto apart = [](i32x16 a, i32x16 b) { return shr<3>(max(a, b) - min(a, b)); };
    return max(apart(exponents[0], exponents[1]), apart(exponents[2], exponents[3]));
  }

#if DODONA_TIER_v4_vnni
  // Of CPUs that have tiles.
  static DODONA_INLINE i32x16 times_halves(i32x16 a, i32x16 b) {
    i32x16 product;
    asm("vmulph %2, %1, %0" : "=v"(product.v.v) : "v"(a.v.v), "v"(b.v.v));
    return product;
  }
  /// Bytes of a table of 64, by the low six bits of `bytes`.
  static DODONA_INLINE i32x16 lookup_64(i32x16 table, i32x16 bytes) {
    i32x16 found;
    asm("vpermb %2, %1, %0" : "=v"(found.v.v) : "v"(bytes.v.v), "v"(table.v.v));
    return found;
  }
  /// A NaN has no bits of fp16 that are bf16's.
  static DODONA_INLINE bool has_nan(i32x16 codes) {
    const i32x16 magnitude = i32x16::splat(0x7F7F7F7F);
    return _mm512_cmpeq_epi8_mask((codes & magnitude).v.v, magnitude.v.v) != 0;
  }
  static DODONA_INLINE void decode_halves(const std::uint8_t* packed, i32x16 scales, std::uint8_t* to) {
    const i32x16 table = load_bytes(half_table.bytes), high_bytes = i32x16::splat(static_cast<std::int32_t>(0xFF00FF00));
    const i32x16 kept = i32x16::splat(static_cast<std::int32_t>(0x8FFF8FFF)),
                 scale_kept = i32x16::splat(static_cast<std::int32_t>(0xBF80BF80));
    const auto low_bytes = [](i32x16 x) { return i32x16{{_mm512_slli_epi16(x.v.v, 8)}}; };
    DODONA_UNROLL(4)
    for (int block = 0; block < 4; ++block) {
      // Column j's scale to the high bytes of lane j: its fields are fp16's one place higher, but for 2^8.
      const i32x16 which = lane_index() * i32x16::splat(0x01010101) + i32x16::splat(0x10101010 * block);
      const i32x16 scale = times_halves(sra_16<1>(lookup_64(scales, which)) & scale_kept, i32x16::splat(0x5C005C00));
      DODONA_UNROLL(2)
      for (int half = 0; half < 2; ++half) {
        const i32x16 words = load_bytes(packed + 128 * block + 64 * half);
        const i32x16 even = lookup_64(table, words), odd = lookup_64(table, shr<4>(words));
        const i32x16 values[4] = {low_bytes(even), low_bytes(odd), even & high_bytes, odd & high_bytes};
        i32x16 lines[4];
        DODONA_UNROLL(4)
        for (int line = 0; line < 4; ++line) lines[line] = sra_16<3>(times_halves(scale, values[line])) & kept;
        store(lines, to + 512 * block + 256 * half);
      }
    }
  }
#endif
};

}  // namespace dodona::DODONA_TIER
