// e4m3 and e5m2 codes as bf16, of which all are numbers, none denormal, and NaNs stay NaN: for matrix units that sum products of such.
// Included by *.simd.cpp only.
#pragma once

#include "simd/convert.h"

namespace dodona::DODONA_TIER {

/// The bytes of the bf16 of each magnitude: what processors with matrix units look up in one instruction.
struct Bf16OfFp8 {
  alignas(64) std::uint8_t high[128], low[128];
};
template <bool e5m2>
constexpr Bf16OfFp8 bf16_of_fp8() {
  constexpr int digits = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7, infinity = e5m2 ? 0x7C : 0x7F;
  Bf16OfFp8 table{};
  for (int code = 0; code < 128; ++code) {
    int exponent = code >> digits, fraction = code & ((1 << digits) - 1);
    int bits = 0;
    if (code >= infinity) {
      bits = e5m2 && code == infinity ? 0x7F80 : 0x7FC0;
    } else if (code != 0) {
      if (exponent == 0) {
        for (exponent = 1; fraction < 1 << digits; --exponent) fraction *= 2;
        fraction -= 1 << digits;
      }
      bits = (exponent - bias + 127) << 7 | fraction << (7 - digits);
    }
    table.high[code] = static_cast<std::uint8_t>(bits >> 8), table.low[code] = static_cast<std::uint8_t>(bits & 0xFF);
  }
  return table;
}
template <bool e5m2>
inline constexpr Bf16OfFp8 bf16_table = bf16_of_fp8<e5m2>();

/// Sixty-four codes as bf16.
struct WideCodes {
  i32x16 first, last;
};

#if DODONA_TIER_v4_vnni
/// Every byte of `codes` replaced by that of 128 which its low seven bits name. Who asks for it has seen that the processor can.
DODONA_INLINE __m512i lookup_128(const std::uint8_t (&table)[128], __m512i codes) {
  asm("vpermi2b %2, %1, %0" : "+v"(codes) : "v"(_mm512_load_si512(table)), "v"(_mm512_load_si512(table + 64)));
  return codes;
}
/// Of every sixteen bytes the first eight, and the last.
template <bool e5m2>
DODONA_INLINE WideCodes widen_by_eights(__m512i codes) {
  const __m512i low = lookup_128(bf16_table<e5m2>.low, codes), magnitudes = lookup_128(bf16_table<e5m2>.high, codes);
  const __m512i high = _mm512_ternarylogic_epi32(magnitudes, codes, _mm512_set1_epi8(static_cast<char>(0x80)), 0xF8);  // a | (b & c)
  return {{{_mm512_unpacklo_epi8(low, high)}}, {{_mm512_unpackhi_epi8(low, high)}}};
}
#else
/// Codes in the order of `from`.
template <bool e5m2, class From>
DODONA_INLINE WideCodes widen_one_by_one(i32x16 codes, const From& from) {
  std::uint8_t bytes[64];
  std::uint16_t wide[64];
  codes.store(reinterpret_cast<std::int32_t*>(bytes));
  for (int i = 0; i < 64; ++i) {
    const std::uint8_t code = bytes[from(i)], magnitude = code & 0x7F;
    wide[i] = static_cast<std::uint16_t>((bf16_table<e5m2>.high[magnitude] | (code & 0x80)) << 8 | bf16_table<e5m2>.low[magnitude]);
  }
  return {load_bytes(wide), load_bytes(wide + 32)};
}
#endif

/// In order.
template <bool e5m2>
DODONA_INLINE WideCodes widen_codes(i32x16 codes) {
#if DODONA_TIER_v4_vnni
  return widen_by_eights<e5m2>(_mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), codes.v.v));
#else
  return widen_one_by_one<e5m2>(codes, [](int i) { return i; });
#endif
}
/// The first two codes of each lane, and the last two.
template <bool e5m2>
DODONA_INLINE WideCodes widen_pairs(i32x16 codes) {
#if DODONA_TIER_v4_vnni
  const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
  return widen_by_eights<e5m2>(_mm512_shuffle_epi8(codes.v.v, order));
#else
  return widen_one_by_one<e5m2>(codes, [](int i) { return i % 32 / 2 * 4 + i / 32 * 2 + i % 2; });
#endif
}

}  // namespace dodona::DODONA_TIER
