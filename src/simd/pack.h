// Numbers of sixteen bits to bytes, sixty-four at a time. Included by *.simd.cpp only.
#pragma once

#include "simd/f32x16.h"

namespace dodona::DODONA_TIER {
namespace lanes {

#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
/// What is packed within every 128 bits has eights of a and of b in turn.
DODONA_INLINE i32 packed_in_order(i32 packed) {
  return {_mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), packed.v)};
}
DODONA_INLINE i32 low_and_high(i32 a, i32 b) {
  return {_mm512_mask_blend_epi16(0xAAAAAAAA, a.v, b.v)};
}
DODONA_INLINE i32 packed_signed(i32 a, i32 b) {
  return {_mm512_packs_epi16(a.v, b.v)};
}
DODONA_INLINE i32 packed_unsigned(i32 a, i32 b) {
  return {_mm512_packus_epi16(a.v, b.v)};
}
#elif DODONA_TIER_v3
DODONA_INLINE i32 low_and_high(i32 a, i32 b) {
  return {{_mm256_blend_epi16(a.lo.v, b.lo.v, 0xAA)}, {_mm256_blend_epi16(a.hi.v, b.hi.v, 0xAA)}};
}
DODONA_INLINE i32 packed_in_order(i32 packed) {
  return {{_mm256_permute4x64_epi64(packed.lo.v, 0xD8)}, {_mm256_permute4x64_epi64(packed.hi.v, 0xD8)}};
}
DODONA_INLINE i32 packed_signed(i32 a, i32 b) {
  return {{_mm256_packs_epi16(a.lo.v, a.hi.v)}, {_mm256_packs_epi16(b.lo.v, b.hi.v)}};
}
DODONA_INLINE i32 packed_unsigned(i32 a, i32 b) {
  return {{_mm256_packus_epi16(a.lo.v, a.hi.v)}, {_mm256_packus_epi16(b.lo.v, b.hi.v)}};
}
#elif DODONA_TIER_neon
template <class Narrow>
DODONA_INLINE i32 bytes_of(i32 a, i32 b, const Narrow& narrow) {
  const auto both = [&](twin<i32x4> x) {
    return i32x4{vcombine_s32(narrow(vreinterpretq_s16_s32(x.lo.v)), narrow(vreinterpretq_s16_s32(x.hi.v)))};
  };
  return {{both(a.lo), both(a.hi)}, {both(b.lo), both(b.hi)}};
}
DODONA_INLINE i32 packed_signed(i32 a, i32 b) {
  return bytes_of(a, b, [](int16x8_t x) { return vreinterpret_s32_s8(vqmovn_s16(x)); });
}
DODONA_INLINE i32 packed_unsigned(i32 a, i32 b) {
  return bytes_of(a, b, [](int16x8_t x) { return vreinterpret_s32_u8(vqmovun_s16(x)); });
}
#else
template <int least, int most>
DODONA_INLINE i32 clamped_bytes(i32 a, i32 b) {
  i32 r;
  for (int lane = 0; lane < 16; ++lane) {
    const i32& from = lane < 8 ? a : b;
    r.x[lane] = 0;
    for (int i = 0; i < 4; ++i) {
      const int number = static_cast<std::int16_t>(from.x[lane % 8 * 2 + i / 2] >> (i % 2 * 16));
      const int clamped = number < least ? least : number > most ? most : number;
      r.x[lane] |= static_cast<std::uint32_t>(clamped & 0xFF) << (8 * i);
    }
  }
  return r;
}
DODONA_INLINE i32 packed_signed(i32 a, i32 b) {
  return clamped_bytes<-128, 127>(a, b);
}
DODONA_INLINE i32 packed_unsigned(i32 a, i32 b) {
  return clamped_bytes<0, 255>(a, b);
}
#endif

#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
DODONA_INLINE i32 bytes_by_place(i32 a) {
  const __m512i within_four = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const __m512i fours = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return {_mm512_permutexvar_epi32(fours, _mm512_shuffle_epi8(a.v, within_four))};
}
#else
DODONA_INLINE i32 bytes_by_place(i32 a) {
  std::int32_t words[16];
  std::uint8_t bytes[64];
  a.store(words);
  for (int i = 0; i < 64; ++i) bytes[i] = static_cast<std::uint8_t>(static_cast<std::uint32_t>(words[i % 16]) >> i / 16 * 8);
  __builtin_memcpy(words, bytes, sizeof words);
  return i32::load(words);
}
#endif

/// Of bytes below sixteen the even ones, and the odd ones times sixteen, in sixteen bits; and fours of bytes that were packed twice within
/// every 128 bits as they were.
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
DODONA_INLINE i32 nibbles(i32 codes) {
  return {_mm512_maddubs_epi16(codes.v, _mm512_set1_epi16(0x1001))};
}
DODONA_INLINE i32 twice_packed_in_order(i32 packed) {
  return {_mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), packed.v)};
}
#elif DODONA_TIER_v3
DODONA_INLINE i32 nibbles(i32 codes) {
  const __m256i weights = _mm256_set1_epi16(0x1001);
  return {{_mm256_maddubs_epi16(codes.lo.v, weights)}, {_mm256_maddubs_epi16(codes.hi.v, weights)}};
}
DODONA_INLINE i32 twice_packed_in_order(i32 packed) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return {{_mm256_permutevar8x32_epi32(packed.lo.v, order)}, {_mm256_permutevar8x32_epi32(packed.hi.v, order)}};
}
#else
DODONA_INLINE i32 nibbles(i32 codes) {
  return bit_or(bit_and(codes, i32::splat(0x000F000F)), bit_and(shr<4>(codes), i32::splat(0x00F000F0)));
}
DODONA_INLINE i32 twice_packed_in_order(i32 packed) {
  return packed;
}
#endif

#if DODONA_TIER_neon || DODONA_TIER_generic
DODONA_INLINE i32 packed_in_order(i32 packed) {
  return packed;
}
DODONA_INLINE i32 low_and_high(i32 a, i32 b) {
  return bit_or(bit_and(a, i32::splat(0xFFFF)), bit_and(b, i32::splat(-0x10000)));
}
#endif

}  // namespace lanes

/// The low halves of the lanes of two vectors in turn: of those of even index and those of odd index, as they lie in memory.
DODONA_INLINE i32x16 in_turn_16(i32x16 even, i32x16 odd) {
  return {lanes::low_and_high(even.v, shl<16>(odd).v)};
}
/// The lowest bytes of all lanes as they lie in memory, then the second ones, and so on.
DODONA_INLINE i32x16 bytes_by_place(i32x16 a) {
  return {lanes::bytes_by_place(a.v)};
}
/// Sixty-four bytes: the signed numbers of 16 bits of a, then those of b, clamped to -128 and 127.
DODONA_INLINE i32x16 signed_bytes(i32x16 a, i32x16 b) {
  return {lanes::packed_in_order(lanes::packed_signed(a.v, b.v))};
}
/// Those clamped to 0 and 255.
DODONA_INLINE i32x16 unsigned_bytes(i32x16 a, i32x16 b) {
  return {lanes::packed_in_order(lanes::packed_unsigned(a.v, b.v))};
}
namespace lanes {
/// Bytes of a and b, packed within every 128 bits, and in bit `place` of each whether the number of 16 bits in its place in x, then y, has
/// a sign.
template <int place>
DODONA_INLINE i32x16 packed_signed_like(i32x16 a, i32x16 b, i32x16 x, i32x16 y) {
  const i32x16 signs = i32x16{packed_signed(x.v, y.v)} & i32x16::splat(static_cast<std::int32_t>(0x80808080));
  return i32x16{packed_unsigned(a.v, b.v)} | shr<7 - place>(signs);
}
}  // namespace lanes

/// unsigned_bytes(a, b), and in bit `place` of each whether the number of 16 bits in its place in x, then y, has a sign.
template <int place>
DODONA_INLINE i32x16 bytes_signed_like(i32x16 a, i32x16 b, i32x16 x, i32x16 y) {
  return {lanes::packed_in_order(lanes::packed_signed_like<place>(a, b, x, y).v)};
}

/// A hundred and twenty-eight codes of four bits as they lie in memory: numbers of 16 bits below eight, and in bit 3 whether the number in
/// their place in x has a sign.
DODONA_INLINE i32x16 nibbles_signed_like(const i32x16 (&codes)[4], const i32x16 (&x)[4]) {
  const i32x16 first = lanes::packed_signed_like<3>(codes[0], codes[1], x[0], x[1]),
               second = lanes::packed_signed_like<3>(codes[2], codes[3], x[2], x[3]);
  return {lanes::twice_packed_in_order(lanes::packed_unsigned(lanes::nibbles(first.v), lanes::nibbles(second.v)))};
}

}  // namespace dodona::DODONA_TIER
