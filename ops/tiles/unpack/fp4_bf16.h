// FP4 as bf16, for matrix units that sum products of such: doubled e2m1 codes times their scales. Both have few digits, so each is exact,
// as all sums of a block are in fp32, in any order. Included by *.simd.cpp only.
//
// The order within sixteen k is that of a word of packed codes (nibbles.h) whose halves are taken apart: k, k + 4, k + 1, k + 5, ...
#pragma once

#include <utility>

#include "ops/tiles/unpack/nvfp4.h"
#include "simd/words.h"

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
/// 2^50 times the same as bf16, all zeros without a sign: words by the low five bits of an index, the fifth of which is the next code's.
struct WordTable {
  alignas(64) std::uint16_t words[32];
};
constexpr WordTable doubled_codes_as_large_bf16() {
  constexpr std::uint16_t magnitude[8] = {0, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40C0, 0x4100, 0x4140};
  WordTable table{};
  for (int i = 0; i < 32; ++i)
    if (i & 7) table.words[i] = static_cast<std::uint16_t>((magnitude[i & 7] + (50 << 7)) | (i & 8 ? 0x8000 : 0));
  return table;
}

#if DODONA_TIER_v4_vnni
// Of CPUs that have tiles.
DODONA_INLINE i32x16 times_halves(i32x16 a, i32x16 b) {
  i32x16 product;
  asm("vmulph %2, %1, %0" : "=v"(product.v.v) : "v"(a.v.v), "v"(b.v.v));
  return product;
}
/// Bytes of a table of 64, by the low six bits of `bytes`; and of 32 words.
DODONA_INLINE i32x16 lookup_64(i32x16 table, i32x16 bytes) {
  i32x16 found;
  asm("vpermb %2, %1, %0" : "=v"(found.v.v) : "v"(bytes.v.v), "v"(table.v.v));
  return found;
}
DODONA_INLINE i32x16 lookup_words(const WordTable& table, i32x16 words) {
  return {{_mm512_permutexvar_epi16(words.v.v, _mm512_load_si512(table.words))}};
}
#endif

/// Without instructions for it: `OfScales` says what scales are.
template <class Unpack, class OfScales>
struct Fp4Floats : Unpack {
  using Scales = OfScales;
  static constexpr FloatTable float_table = doubled_codes_as_floats();

  /// 128 codes of a row, a word of eight in each lane, times the scales of these words: 32 k, in the order of packed weights, in each.
  static DODONA_INLINE void pairs_of_row(i32x16 codes, const std::uint8_t* scales, i32x16 (&pairs)[4]) {
    i32x16 words[4];
    take_apart(codes, f32x16::load(float_table.values), Scales::numbers(scales) * f32x16::splat(Scales::rows_by), words);
    const f32x16_pair even = interleave(as_f32(words[0]), as_f32(words[2])), odd = interleave(as_f32(words[1]), as_f32(words[3]));
    const f32x16_pair first = interleave(even.first, odd.first), last = interleave(even.second, odd.second);
    pairs[0] = as_i32(first.first), pairs[1] = as_i32(first.second), pairs[2] = as_i32(last.first), pairs[3] = as_i32(last.second);
  }

  /// See decode.
  static inline void decode_floats(const i32x16 (&words)[8], i32x16 scales, std::uint8_t* to) {
    std::uint8_t codes[64];
    scales.store(reinterpret_cast<std::int32_t*>(codes));
    for (int block = 0; block < 4; ++block) {
      const f32x16 of_block = Scales::numbers(codes + 16 * (block * 16 / Scales::block)) * f32x16::splat(Scales::weights_by);
      for (int half = 0; half < 2; ++half) {
        i32x16 lines[4];
        take_apart(words[2 * block + half], f32x16::load(float_table.values), of_block, lines);
        store_lines(lines, to + 512 * block + 256 * half);
      }
    }
  }

 protected:
  static DODONA_INLINE void store_lines(const i32x16 (&lines)[4], std::uint8_t* to) {
    DODONA_UNROLL(4)
    for (int i = 0; i < 4; ++i) lines[i].store(reinterpret_cast<std::int32_t*>(to + 64 * i));
  }

 private:
  static DODONA_INLINE i32x16 both(i32x16 first, i32x16 second, f32x16 table, f32x16 scales) {
    return shr<16>(as_i32(lookup_16(table, first) * scales)) | as_i32(lookup_16(table, second) * scales);
  }
  /// k and k + 4 of every word of eight codes, for four k.
  static DODONA_INLINE void take_apart(i32x16 codes, f32x16 table, f32x16 scales, i32x16 (&words)[4]) {
    words[0] = both(codes, shr<16>(codes), table, scales);
    words[1] = both(shr<4>(codes), shr<20>(codes), table, scales);
    words[2] = both(shr<8>(codes), shr<24>(codes), table, scales);
    words[3] = both(shr<12>(codes), shr<28>(codes), table, scales);
  }
};

// ---- NVFP4

/// Weights are 2^-112 times what they are, and rows 2^112 times: then a weight's bits are those of an fp16 with its exponent three places
/// lower, and vectors that have arithmetic in fp16 make 32 at a time.
struct E4m3Scales {
  static constexpr int block = 16;
  static constexpr float weights_by = 0x1p-112f, rows_by = 0x1p112f;
  static DODONA_INLINE f32x16 numbers(const std::uint8_t* codes) { return load_e4m3(codes); }
};

using Nvfp4Floats = Fp4Floats<Nvfp4Unpack, E4m3Scales>;

struct Nvfp4Bf16Unpack : Nvfp4Floats {
  static constexpr ByteTable half_table = doubled_codes_as_halves();
  /// Whether the unit's sums of 32 k are exact, however far scales are apart.
  static constexpr bool always_exact = false;

  /// A step of sixteen columns, whose words and scales are those of packed ones: for each 32 k sixteen lines of them, two k of each side by
  /// side. fetch(v) goes with word v, so that memory is asked evenly. Returns, in bytes, how far the scales of 32 k are apart: exponents of
  /// e4m3, denormals' as that of the least normal number.
  template <class Fetch>
  static DODONA_INLINE i32x16 decode(const i32x16 (&words)[8], i32x16 scales, std::uint8_t* to, const Fetch& fetch) {
#if DODONA_TIER_v4_vnni
    if (!has_nan(scales)) {
      decode_halves(words, scales, to, fetch);
      const i32x16 of_blocks{{ _mm512_max_epu8((scales & i32x16::splat(0x78787878)).v.v, _mm512_set1_epi8(8)) }};
      const i32x16 others{{ _mm512_shuffle_i32x4(of_blocks.v.v, of_blocks.v.v, 0xB1) }};
      return shr<3>(i32x16{{ _mm512_subs_epu8(of_blocks.v.v, others.v.v) }} | i32x16{{ _mm512_subs_epu8(others.v.v, of_blocks.v.v) }});
    }
#endif
    decode_floats(words, scales, to);
    for (int v = 0; v < 8; ++v) fetch(v);
    return apart(scales);
  }

 private:
  static inline i32x16 apart(i32x16 scales) {
    std::uint8_t codes[64];
    scales.store(reinterpret_cast<std::int32_t*>(codes));
    const auto exponents = [&](int block) { return max(load_u8(codes + 16 * block) & i32x16::splat(15 << 3), i32x16::splat(1 << 3)); };
    const auto between = [](i32x16 a, i32x16 b) { return max(a, b) - min(a, b); };
    return shr<3>(max(between(exponents(0), exponents(1)), between(exponents(2), exponents(3))));
  }

#if DODONA_TIER_v4_vnni
  /// A NaN has no bits of fp16 that are bf16's.
  static DODONA_INLINE bool has_nan(i32x16 codes) {
    const i32x16 magnitude = i32x16::splat(0x7F7F7F7F);
    return _mm512_cmpeq_epi8_mask((codes & magnitude).v.v, magnitude.v.v) != 0;
  }
  /// Of codes in the high bytes of words: their fields are fp16's one place higher, but for 2^8.
  static DODONA_INLINE i32x16 half_scales(i32x16 codes) {
    return times_halves(sra_16<1>(codes) & i32x16::splat(static_cast<std::int32_t>(0xBF80BF80)), i32x16::splat(0x5C005C00));
  }
  static DODONA_INLINE i32x16 as_bf16(i32x16 halves) {
    return sra_16<3>(halves) & i32x16::splat(static_cast<std::int32_t>(0x8FFF8FFF));
  }
  template <class Fetch>
  static DODONA_INLINE void decode_halves(const i32x16 (&all)[8], i32x16 scales, std::uint8_t* to, const Fetch& fetch) {
    const i32x16 table = load_bytes(half_table.bytes), high_bytes = i32x16::splat(static_cast<std::int32_t>(0xFF00FF00));
    const auto low_bytes = [](i32x16 x) { return i32x16{{ _mm512_slli_epi16(x.v.v, 8) }}; };
    DODONA_UNROLL(4)
    for (int block = 0; block < 4; ++block) {
      // Column j's scale to lane j.
      const i32x16 which = lane_index() * i32x16::splat(0x01010101) + i32x16::splat(0x10101010 * block);
      const i32x16 scale = half_scales(lookup_64(scales, which));
      DODONA_UNROLL(2)
      for (int half = 0; half < 2; ++half) {
        const i32x16 words = all[2 * block + half];
        fetch(2 * block + half);
        const i32x16 even = lookup_64(table, words), odd = lookup_64(table, shr<4>(words));
        const i32x16 values[4] = {low_bytes(even), low_bytes(odd), even & high_bytes, odd & high_bytes};
        i32x16 lines[4];
        DODONA_UNROLL(4)
        for (int line = 0; line < 4; ++line) lines[line] = as_bf16(times_halves(scale, values[line]));
        store_lines(lines, to + 512 * block + 256 * half);
      }
    }
  }
#endif
};

// ---- MXFP4

/// From 2^-50 to 2^50.
struct Ue8m0Scales {
  static constexpr int block = 32;
  static constexpr float weights_by = 1, rows_by = 1;
  static DODONA_INLINE f32x16 numbers(const std::uint8_t* codes) { return as_f32(shl<23>(load_u8(codes))); }
};

using Mxfp4Floats = Fp4Floats<Mxfp4Unpack, Ue8m0Scales>;

struct Mxfp4Bf16Unpack : Mxfp4Floats {
  static constexpr WordTable large_table = doubled_codes_as_large_bf16();
  static constexpr bool always_exact = true;

  /// As of NVFP4; nothing is apart.
  template <class Fetch>
  static DODONA_INLINE i32x16 decode(const i32x16 (&words)[8], i32x16 scales, std::uint8_t* to, const Fetch& fetch) {
#if DODONA_TIER_v4_vnni
    alignas(64) std::uint8_t codes[64];
    scales.store(reinterpret_cast<std::int32_t*>(codes));
    DODONA_UNROLL(2)
    for (int pair = 0; pair < 2; ++pair) {
      const i32x16 below = places_below(load_u8(codes + 16 * pair));
      DODONA_UNROLL(4)
      for (int eight = 0; eight < 4; ++eight) {
        fetch(4 * pair + eight);
        const i32x16 word = words[4 * pair + eight], codes_of_lines[4] = {word, shr<4>(word), shr<8>(word), shr<12>(word)};
        i32x16 lines[4];
        DODONA_UNROLL(4)
        for (int line = 0; line < 4; ++line) lines[line] = lowered(lookup_words(large_table, codes_of_lines[line]), below);
        store_lines(lines, to + 1024 * pair + 256 * eight);
      }
    }
#else
    decode_floats(words, scales, to);
    for (int v = 0; v < 8; ++v) fetch(v);
#endif
    return i32x16::zero();
  }

#if DODONA_TIER_v4_vnni
 private:
  /// Powers of two below 2^50, at the place of bf16's exponent.
  static DODONA_INLINE i32x16 places_below(i32x16 codes) {
    const i32x16 places = shl<7>(i32x16::splat(127 + 50) - codes);
    return places | shl<16>(places);
  }
  /// Zeros stay.
  static DODONA_INLINE i32x16 lowered(i32x16 numbers, i32x16 by) {
    return excess_16(numbers, by);
  }
#endif
};

}  // namespace dodona::DODONA_TIER
