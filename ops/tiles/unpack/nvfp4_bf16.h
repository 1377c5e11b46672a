// NVFP4 as bf16, for matrix units that sum products of such: doubled e2m1 codes, of rows times their scales. Both have few digits, so each
// is exact, and so are all sums over a block of sixteen k in fp32, in any order: 2304 times a scale. Included by *.simd.cpp only.
//
// The order within a block is that of a word of packed codes (nibbles.h) whose halves are shifted apart: k, k + 4, k + 1, k + 5, ...
#pragma once

#include "ops/tiles/unpack/nvfp4.h"

namespace dodona::DODONA_TIER {

struct WordTable {
  alignas(64) std::uint16_t words[32];
};
/// Doubled values of all codes as bf16, twice over.
constexpr WordTable doubled_codes_as_bf16() {
  constexpr std::uint16_t magnitude[8] = {0x0000, 0x3F80, 0x4000, 0x4040, 0x4080, 0x40C0, 0x4100, 0x4140};
  WordTable table{};
  for (int i = 0; i < 32; ++i) table.words[i] = static_cast<std::uint16_t>(magnitude[i & 7] | (i & 8 ? 0x8000 : 0));
  return table;
}

/// Every word of sixteen bits replaced by that word of the table which its low nibble names; the table's halves are equal.
DODONA_INLINE i32x16 lookup_words(i32x16 table, i32x16 words) {
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
  return {{_mm512_permutexvar_epi16(words.v.v, table.v.v)}};  // looks at the low five bits
#else
  std::uint16_t from[32], of[32];
  table.store(reinterpret_cast<std::int32_t*>(from));
  words.store(reinterpret_cast<std::int32_t*>(of));
  for (std::uint16_t& word : of) word = from[word & 15];
  return load_bytes(of);
#endif
}

struct Nvfp4Bf16Unpack : Nvfp4Unpack {
  static constexpr WordTable word_table = doubled_codes_as_bf16();

  /// Weights of many panels are fetched by who multiplies with them.
  static void pack(const ops::I8Weights& w, std::int64_t panel, std::int64_t panels, std::int64_t begin, std::int64_t end,
                   std::uint8_t* out) {
    Nvfp4Unpack::pack<false>(w, panel, panels, begin, end, out);
  }

  /// Block `block` of a step of a packed panel: eight lines of sixteen columns, two k of each side by side.
  static DODONA_INLINE void decode_pairs(const std::uint8_t* packed, int block, i32x16 table, std::uint8_t* to) {
    DODONA_UNROLL(2)
    for (int half = 0; half < 2; ++half) {
      const i32x16 codes = load_bytes(packed + 128 * block + 64 * half);
      auto* const lines = reinterpret_cast<std::int32_t*>(to + 256 * half);
      lookup_words(table, codes).store(lines);
      lookup_words(table, shr<4>(codes)).store(lines + 16);
      lookup_words(table, shr<8>(codes)).store(lines + 32);
      lookup_words(table, shr<12>(codes)).store(lines + 48);
    }
  }

  /// Sixteen codes of a row, eight bytes, times `scale`: 32 bytes in the order of decoded weights.
  static DODONA_INLINE void row_block(const std::uint8_t* codes, float scale, void* to) {
    std::uint64_t nibbles;
    __builtin_memcpy(&nibbles, codes, sizeof nibbles);
    const auto spread = [](std::uint64_t x) {
      x = (x | x << 8) & 0x00FF00FF00FF00FF;
      return (x | x << 4) & 0x0F0F0F0F0F0F0F0F;
    };
    constexpr std::uint64_t halves = 0x0000FFFF0000FFFF;
    const std::uint64_t ordered = spread(nibbles & halves) | spread(nibbles >> 16 & halves) << 4;
    store_bf16(load_e2m1(&ordered) * f32x16::splat(2.0f * scale), to);
  }
};

}  // namespace dodona::DODONA_TIER
