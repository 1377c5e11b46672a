// Narrow number formats in memory <-> f32x16, sixteen elements at a time. Included by *.simd.cpp only.
//
// Widening is exact. Narrowing rounds to nearest even, once. `partial` variants take n elements left, touch min(n, 16) of them in
// memory and nothing beyond, and zero the other lanes. The same bits on every tier, NaNs included; the results are those of
// quant/half.h, quant/e4m3.h, quant/e5m2.h and quant/e2m1.h (saturating conversions).
#pragma once

#include <cstdint>

#include "simd/f32x16.h"

namespace dodona::DODONA_TIER {

// ---- bf16

DODONA_INLINE f32x16 load_bf16(const void* p) {
  return as_f32(shl<16>(i32x16{lanes::widen_unsigned(lanes::codes16::load(p))}));
}
DODONA_INLINE f32x16 load_bf16_partial(const void* p, std::int64_t n) {
  return as_f32(shl<16>(i32x16{lanes::widen_unsigned(lanes::codes16::load_first(p, lanes_left(n)))}));
}
/// Sixteen codes as they are, in the low halves of lanes.
DODONA_INLINE i32x16 load_16(const void* p) {
  return {lanes::widen_unsigned(lanes::codes16::load(p))};
}
/// Codes in the low 16 bits. Overflow gives infinity; every NaN gives 0x7FFF.
DODONA_INLINE i32x16 to_bf16_codes(f32x16 x) {
  const i32x16 u = as_i32(x);
  const i32x16 odd = shr<16>(u) & i32x16::splat(1);
  const i32x16 rounded = shr<16>(u + i32x16::splat(0x7FFF) + odd);
  return select(x == x, rounded, i32x16::splat(0x7FFF));
}
DODONA_INLINE void store_bf16(f32x16 x, void* p) {
  lanes::narrow_to_16(to_bf16_codes(x).v).store(p);
}
DODONA_INLINE void store_bf16_partial(f32x16 x, void* p, std::int64_t n) {
  lanes::narrow_to_16(to_bf16_codes(x).v).store_first(p, lanes_left(n));
}
/// x rounded to bf16 and widened again: the rounding without the store.
DODONA_INLINE f32x16 round_to_bf16(f32x16 x) {
  return as_f32(shl<16>(to_bf16_codes(x)));
}

// ---- f16

/// A signalling NaN becomes quiet.
DODONA_INLINE f32x16 load_f16(const void* p) {
  return {lanes::half_to_f32(lanes::codes16::load(p))};
}
DODONA_INLINE f32x16 load_f16_partial(const void* p, std::int64_t n) {
  return {lanes::half_to_f32(lanes::codes16::load_first(p, lanes_left(n)))};
}
/// Overflow (65520 and above) gives infinity; every NaN gives 0x7FFF.
DODONA_INLINE void store_f16(f32x16 x, void* p) {
  lanes::f32_to_half(canonical_nan(x).v).store(p);
}
DODONA_INLINE void store_f16_partial(f32x16 x, void* p, std::int64_t n) {
  lanes::f32_to_half(canonical_nan(x).v).store_first(p, lanes_left(n));
}
/// Lanes of two f16: the low ones and the high ones, widened.
DODONA_INLINE f32x16_pair widen_f16_pairs(i32x16 pairs) {
  const auto split = lanes::split_to_16(pairs.v);
  return {{lanes::half_to_f32(split.low)}, {lanes::half_to_f32(split.high)}};
}
/// Lanes of two 16-bit codes: the low ones of all lanes, then the high ones, thirty-two side by side.
DODONA_INLINE i32x16 regroup_16(i32x16 pairs) {
  return {lanes::regroup_16(pairs.v)};
}
/// Thirty-two f16 side by side: the first sixteen and the others, widened.
DODONA_INLINE f32x16 widen_first_f16(i32x16 halves) {
  return {lanes::half_to_f32(lanes::sixteens(halves.v).low)};
}
DODONA_INLINE f32x16 widen_last_f16(i32x16 halves) {
  return {lanes::half_to_f32(lanes::sixteens(halves.v).high)};
}
/// x rounded to f16 and widened again.
DODONA_INLINE f32x16 round_to_f16(f32x16 x) {
  return {lanes::half_to_f32(lanes::f32_to_half(canonical_nan(x).v))};
}

// ---- 8-bit and 4-bit floats

/// Codes of a saturating small float (no infinities) with `mantissa_bits`, smallest normal 2^min_exponent, largest value `largest`.
/// Zeros and small values keep their sign. NaN gives `nan_code`.
template <int mantissa_bits, int min_exponent, int sign_bit>
DODONA_INLINE i32x16 to_small_float_codes(f32x16 x, float largest, std::int32_t nan_code) {
  constexpr int dropped = 23 - mantissa_bits;
  const f32x16 magnitude = min(abs(x), f32x16::splat(largest));
  const i32x16 u = as_i32(magnitude);
  // Normal codes: round the mantissa in place (a carry goes to the exponent, as it should) and rebase the exponent.
  const i32x16 odd = shr<dropped>(u) & i32x16::splat(1);
  const i32x16 bias = i32x16::splat((1 << (dropped - 1)) - 1 - ((126 + min_exponent) << 23));
  const i32x16 normal = shr<dropped>(u + bias + odd);
  // Denormal codes: the sum is rounded where the smallest denormal has its bit.
  const f32x16 anchor = as_f32(i32x16::splat((127 + min_exponent + dropped) << 23));
  const i32x16 denormal = as_i32(magnitude + anchor) - as_i32(anchor);
  const f32x16 smallest_normal = as_f32(i32x16::splat((127 + min_exponent) << 23));
  const i32x16 code = select(magnitude < smallest_normal, denormal, normal);
  const i32x16 sign = shr<31 - sign_bit>(as_i32(x)) & i32x16::splat(1 << sign_bit);
  return select(x == x, code | sign, i32x16::splat(nan_code));
}

/// Every finite code exactly; 0x7F and 0xFF give the quiet NaN 0x7FC00000 with their sign.
DODONA_INLINE f32x16 load_e4m3(const void* p) {
  return f32x16{lanes::half_to_f32(lanes::e4m3_to_half(lanes::codes8::load(p)))} * f32x16::splat(256.0f);
}
DODONA_INLINE f32x16 load_e4m3_partial(const void* p, std::int64_t n) {
  return f32x16{lanes::half_to_f32(lanes::e4m3_to_half(lanes::codes8::load_first(p, lanes_left(n))))} * f32x16::splat(256.0f);
}
/// value / 256 for finite codes, +-1.875 for the NaN codes: the cheapest exact widening, where a scale takes the 256 and NaN codes
/// were excluded before.
DODONA_INLINE f32x16 load_e4m3_over_256(const void* p) {
  return {lanes::half_to_f32(lanes::e4m3_to_half_finite(lanes::codes8::load(p)))};
}
DODONA_INLINE f32x16 load_e4m3_over_256_partial(const void* p, std::int64_t n) {
  return {lanes::half_to_f32(lanes::e4m3_to_half_finite(lanes::codes8::load_first(p, lanes_left(n))))};
}
/// Beyond 448, and infinity: 448 with its sign. NaN: 0x7F.
DODONA_INLINE i32x16 to_e4m3_codes(f32x16 x) {
  return to_small_float_codes<3, -6, 7>(x, 448.0f, 0x7F);
}
DODONA_INLINE void store_e4m3(f32x16 x, void* p) {
  lanes::narrow_to_8(to_e4m3_codes(x).v).store(p);
}
DODONA_INLINE void store_e4m3_partial(f32x16 x, void* p, std::int64_t n) {
  lanes::narrow_to_8(to_e4m3_codes(x).v).store_first(p, lanes_left(n));
}

/// Infinities as such; NaN codes give quiet NaNs with their sign.
DODONA_INLINE f32x16 load_e5m2(const void* p) {
  return {lanes::half_to_f32(lanes::e5m2_to_half(lanes::codes8::load(p)))};
}
DODONA_INLINE f32x16 load_e5m2_partial(const void* p, std::int64_t n) {
  return {lanes::half_to_f32(lanes::e5m2_to_half(lanes::codes8::load_first(p, lanes_left(n))))};
}
/// Beyond 57344, and infinity: 57344 with its sign. NaN: 0x7F.
DODONA_INLINE i32x16 to_e5m2_codes(f32x16 x) {
  return to_small_float_codes<2, -14, 7>(x, 57344.0f, 0x7F);
}
DODONA_INLINE void store_e5m2(f32x16 x, void* p) {
  lanes::narrow_to_8(to_e5m2_codes(x).v).store(p);
}
DODONA_INLINE void store_e5m2_partial(f32x16 x, void* p, std::int64_t n) {
  lanes::narrow_to_8(to_e5m2_codes(x).v).store_first(p, lanes_left(n));
}

/// Eight bytes; element 2j is the low nibble of byte j.
DODONA_INLINE f32x16 load_e2m1(const void* p) {
  std::uint64_t codes;
  __builtin_memcpy(&codes, p, sizeof codes);
  return {lanes::e2m1_to_f32(codes)};
}
/// Reads (n + 1) / 2 bytes; with n odd the high nibble of the last one is ignored.
DODONA_INLINE f32x16 load_e2m1_partial(const void* p, std::int64_t n) {
  const int count = lanes_left(n);
  std::uint64_t codes = 0;
  __builtin_memcpy(&codes, p, (static_cast<unsigned>(count) + 1u) / 2u);
  if (count < 16) codes &= (std::uint64_t{1} << (4 * count)) - 1u;
  return {lanes::e2m1_to_f32(codes)};
}
/// Beyond 6, and infinity: 6 with its sign. NaN: code 7 (+6). Small values keep their sign: -0.1 gives code 8.
DODONA_INLINE i32x16 to_e2m1_codes(f32x16 x) {
  return to_small_float_codes<1, 0, 3>(x, 6.0f, 0x7);
}
/// Sixteen codes 0..15 as eight bytes, the first in the lowest nibble.
DODONA_INLINE std::uint64_t pack_nibbles(i32x16 codes) {
  return lanes::pack_nibbles(lanes::narrow_to_8(codes.v));
}
DODONA_INLINE void store_e2m1(f32x16 x, void* p) {
  const std::uint64_t codes = pack_nibbles(to_e2m1_codes(x));
  __builtin_memcpy(p, &codes, sizeof codes);
}
/// Writes (n + 1) / 2 bytes; with n odd the high nibble of the last one becomes 0.
DODONA_INLINE void store_e2m1_partial(f32x16 x, void* p, std::int64_t n) {
  const int count = lanes_left(n);
  std::uint64_t codes = pack_nibbles(to_e2m1_codes(x));
  if (count < 16) codes &= (std::uint64_t{1} << (4 * count)) - 1u;
  __builtin_memcpy(p, &codes, (static_cast<unsigned>(count) + 1u) / 2u);
}

// ---- 8-bit integers

DODONA_INLINE i32x16 load_u8(const void* p) {
  return {lanes::widen_unsigned(lanes::codes8::load(p))};
}
DODONA_INLINE i32x16 load_u8_partial(const void* p, std::int64_t n) {
  return {lanes::widen_unsigned(lanes::codes8::load_first(p, lanes_left(n)))};
}
DODONA_INLINE i32x16 load_i8(const void* p) {
  return {lanes::widen_signed(lanes::codes8::load(p))};
}
DODONA_INLINE i32x16 load_i8_partial(const void* p, std::int64_t n) {
  return {lanes::widen_signed(lanes::codes8::load_first(p, lanes_left(n)))};
}
/// The low byte of every lane.
DODONA_INLINE void store_low_8(i32x16 x, void* p) {
  lanes::narrow_to_8((x & i32x16::splat(0xFF)).v).store(p);
}
DODONA_INLINE void store_low_8_partial(i32x16 x, void* p, std::int64_t n) {
  lanes::narrow_to_8((x & i32x16::splat(0xFF)).v).store_first(p, lanes_left(n));
}

}  // namespace dodona::DODONA_TIER
