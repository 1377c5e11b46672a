// Sixteen float lanes, whatever the hardware: one AVX-512 register, two AVX2 registers, four AArch64 registers, or an array.
//
// Included by *.simd.cpp only. The contract, the same on every tier, bit for bit:
// - Arithmetic is IEEE binary32, to nearest even, denormals kept; fma, fnma and fms round once.
// - Whether a lane is NaN is specified, but the sign and payload of a NaN that arithmetic returned (+ - * / fma fnma fms sqrt floor
//   round_even) are the hardware's. Where NaN bits may reach memory as f32, call canonical_nan before the store.
// - Loads, stores, select, min, max, abs, unary minus, copysign, bit operations and permutations move bits and never touch a NaN.
// - Sums over lanes use one tree: lane i + lane i+8, then i + i+4, i + i+2, i + i+1.
// No pointer needs to be aligned.
#pragma once

#include <cstdint>

#include "simd/inline.h"

#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
#include "simd/lanes_avx512.h"
#elif DODONA_TIER_v3
#include "simd/lanes_avx2.h"
#elif DODONA_TIER_neon
#include "simd/lanes_neon.h"
#elif DODONA_TIER_generic
#include "simd/lanes_generic.h"
#else
#error "compile as *.simd.cpp, which the build does once per tier"
#endif

namespace dodona::DODONA_TIER {

/// How many of the next sixteen elements exist when `n` are left.
DODONA_INLINE int lanes_left(std::int64_t n) {
  return n >= 16 ? 16 : n > 0 ? static_cast<int>(n) : 0;
}

/// One bit per lane; on AVX2 and NEON kept as lanes of ones and zeros, so use `bits` sparingly in inner loops.
struct mask16 {
  lanes::mask v;

  /// Lane i is set where bit i is.
  static DODONA_INLINE mask16 from_bits(std::uint16_t bits) { return {lanes::mask::from_bits(bits)}; }
  /// Lanes below n.
  static DODONA_INLINE mask16 first(std::int64_t n) { return from_bits(static_cast<std::uint16_t>((1u << lanes_left(n)) - 1u)); }
  DODONA_INLINE std::uint16_t bits() const { return static_cast<std::uint16_t>(v.to_bits()); }
};

struct f32x16 {
  lanes::f32 v;

  static DODONA_INLINE f32x16 load(const float* p) { return {lanes::f32::load(p)}; }
  /// The first min(n, 16) lanes from memory, which is not read beyond them; the others are zero. None for n <= 0.
  static DODONA_INLINE f32x16 load_partial(const float* p, std::int64_t n) { return {lanes::f32::load_first(p, lanes_left(n))}; }
  /// The others are `fill`.
  static DODONA_INLINE f32x16 load_partial(const float* p, std::int64_t n, float fill) {
    return {lanes::select(mask16::first(n).v, lanes::f32::load_first(p, lanes_left(n)), lanes::f32::splat(fill))};
  }
  static DODONA_INLINE f32x16 splat(float x) { return {lanes::f32::splat(x)}; }
  static DODONA_INLINE f32x16 zero() { return splat(0.0f); }

  DODONA_INLINE void store(float* p) const { v.store(p); }
  /// Writes the first min(n, 16) lanes and nothing else.
  DODONA_INLINE void store_partial(float* p, std::int64_t n) const { v.store_first(p, lanes_left(n)); }
};

/// Sixteen 32-bit integers; overflow wraps.
struct i32x16 {
  lanes::i32 v;

  static DODONA_INLINE i32x16 load(const std::int32_t* p) { return {lanes::i32::load(p)}; }
  static DODONA_INLINE i32x16 load_partial(const std::int32_t* p, std::int64_t n) { return {lanes::i32::load_first(p, lanes_left(n))}; }
  static DODONA_INLINE i32x16 splat(std::int32_t x) { return {lanes::i32::splat(x)}; }
  static DODONA_INLINE i32x16 zero() { return splat(0); }

  DODONA_INLINE void store(std::int32_t* p) const { v.store(p); }
  DODONA_INLINE void store_partial(std::int32_t* p, std::int64_t n) const { v.store_first(p, lanes_left(n)); }
};

// ---- masks

DODONA_INLINE mask16 operator&(mask16 a, mask16 b) {
  return {lanes::bit_and(a.v, b.v)};
}
DODONA_INLINE mask16 operator|(mask16 a, mask16 b) {
  return {lanes::bit_or(a.v, b.v)};
}
DODONA_INLINE mask16 operator^(mask16 a, mask16 b) {
  return {lanes::bit_xor(a.v, b.v)};
}
DODONA_INLINE mask16 operator~(mask16 a) {
  return {lanes::bit_not(a.v)};
}
DODONA_INLINE bool any(mask16 m) {
  return m.bits() != 0;
}
DODONA_INLINE bool all(mask16 m) {
  return m.bits() == 0xFFFF;
}

// ---- float arithmetic

DODONA_INLINE f32x16 operator+(f32x16 a, f32x16 b) {
  return {lanes::add(a.v, b.v)};
}
DODONA_INLINE f32x16 operator-(f32x16 a, f32x16 b) {
  return {lanes::sub(a.v, b.v)};
}
DODONA_INLINE f32x16 operator*(f32x16 a, f32x16 b) {
  return {lanes::mul(a.v, b.v)};
}
DODONA_INLINE f32x16 operator/(f32x16 a, f32x16 b) {
  return {lanes::div(a.v, b.v)};
}
/// a * b + c, rounded once.
DODONA_INLINE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
  return {lanes::fma(a.v, b.v, c.v)};
}
/// c - a * b, rounded once.
DODONA_INLINE f32x16 fnma(f32x16 a, f32x16 b, f32x16 c) {
  return {lanes::fnma(a.v, b.v, c.v)};
}
/// a * b - c, rounded once.
DODONA_INLINE f32x16 fms(f32x16 a, f32x16 b, f32x16 c) {
  return {lanes::fms(a.v, b.v, c.v)};
}
/// a < b ? a : b, so b when either is NaN and b when both are zeros. To skip NaNs in x, write min(x, so_far).
DODONA_INLINE f32x16 min(f32x16 a, f32x16 b) {
  return {lanes::min(a.v, b.v)};
}
/// a > b ? a : b, so b when either is NaN and b when both are zeros. To skip NaNs in x, write max(x, so_far).
DODONA_INLINE f32x16 max(f32x16 a, f32x16 b) {
  return {lanes::max(a.v, b.v)};
}
DODONA_INLINE f32x16 sqrt(f32x16 a) {
  return {lanes::sqrt(a.v)};
}
DODONA_INLINE f32x16 floor(f32x16 a) {
  return {lanes::floor(a.v)};
}
/// To the nearest integer, ties to even; zeros keep the sign of what became zero.
DODONA_INLINE f32x16 round_even(f32x16 a) {
  return {lanes::round_even(a.v)};
}

// Comparisons with a NaN are false, but != is true.
DODONA_INLINE mask16 operator<(f32x16 a, f32x16 b) {
  return {lanes::lt(a.v, b.v)};
}
DODONA_INLINE mask16 operator<=(f32x16 a, f32x16 b) {
  return {lanes::le(a.v, b.v)};
}
DODONA_INLINE mask16 operator>(f32x16 a, f32x16 b) {
  return {lanes::lt(b.v, a.v)};
}
DODONA_INLINE mask16 operator>=(f32x16 a, f32x16 b) {
  return {lanes::le(b.v, a.v)};
}
DODONA_INLINE mask16 operator==(f32x16 a, f32x16 b) {
  return {lanes::eq(a.v, b.v)};
}
DODONA_INLINE mask16 operator!=(f32x16 a, f32x16 b) {
  return ~(a == b);
}
DODONA_INLINE mask16 is_nan(f32x16 a) {
  return a != a;
}
/// m ? a : b, lane by lane.
DODONA_INLINE f32x16 select(mask16 m, f32x16 a, f32x16 b) {
  return {lanes::select(m.v, a.v, b.v)};
}

// ---- integers

DODONA_INLINE i32x16 operator+(i32x16 a, i32x16 b) {
  return {lanes::add(a.v, b.v)};
}
DODONA_INLINE i32x16 operator-(i32x16 a, i32x16 b) {
  return {lanes::sub(a.v, b.v)};
}
/// The low 32 bits of the product.
DODONA_INLINE i32x16 operator*(i32x16 a, i32x16 b) {
  return {lanes::mul(a.v, b.v)};
}
DODONA_INLINE i32x16 operator&(i32x16 a, i32x16 b) {
  return {lanes::bit_and(a.v, b.v)};
}
DODONA_INLINE i32x16 operator|(i32x16 a, i32x16 b) {
  return {lanes::bit_or(a.v, b.v)};
}
DODONA_INLINE i32x16 operator^(i32x16 a, i32x16 b) {
  return {lanes::bit_xor(a.v, b.v)};
}
DODONA_INLINE i32x16 min(i32x16 a, i32x16 b) {
  return {lanes::min(a.v, b.v)};
}
DODONA_INLINE i32x16 max(i32x16 a, i32x16 b) {
  return {lanes::max(a.v, b.v)};
}
/// Shifts by a constant, 0 <= k <= 31: left, right with zeros, right with the sign.
template <int k>
DODONA_INLINE i32x16 shl(i32x16 a) {
  return {lanes::shl<k>(a.v)};
}
template <int k>
DODONA_INLINE i32x16 shr(i32x16 a) {
  return {lanes::shr<k>(a.v)};
}
template <int k>
DODONA_INLINE i32x16 sra(i32x16 a) {
  return {lanes::sra<k>(a.v)};
}
/// Byte by byte, and 16 bits by 16 bits; of a product the low ones; the larger as signed numbers.
DODONA_INLINE i32x16 add_8(i32x16 a, i32x16 b) {
  return {lanes::add_8(a.v, b.v)};
}
DODONA_INLINE i32x16 mul_16(i32x16 a, i32x16 b) {
  return {lanes::mul_16(a.v, b.v)};
}
DODONA_INLINE i32x16 max_16(i32x16 a, i32x16 b) {
  return {lanes::max_16(a.v, b.v)};
}
/// Both halves of every lane, right with their signs.
template <int k>
DODONA_INLINE i32x16 sra_16(i32x16 a) {
  return {lanes::sra_16<k>(a.v)};
}
DODONA_INLINE mask16 operator<(i32x16 a, i32x16 b) {
  return {lanes::lt(a.v, b.v)};
}
DODONA_INLINE mask16 operator>(i32x16 a, i32x16 b) {
  return {lanes::lt(b.v, a.v)};
}
DODONA_INLINE mask16 operator==(i32x16 a, i32x16 b) {
  return {lanes::eq(a.v, b.v)};
}
DODONA_INLINE i32x16 select(mask16 m, i32x16 a, i32x16 b) {
  return {lanes::select(m.v, a.v, b.v)};
}

// ---- between the two

/// The bits of the floats.
DODONA_INLINE i32x16 as_i32(f32x16 a) {
  return {lanes::as_i32(a.v)};
}
/// The floats of those bits.
DODONA_INLINE f32x16 as_f32(i32x16 a) {
  return {lanes::as_f32(a.v)};
}
/// Values, rounded to nearest even above 2^24.
DODONA_INLINE f32x16 to_f32(i32x16 a) {
  return {lanes::to_f32(a.v)};
}
/// To nearest even; NaN and what does not fit become -2^31.
DODONA_INLINE i32x16 to_i32(f32x16 a) {
  return {lanes::to_i32(a.v)};
}
/// Toward zero; NaN and what does not fit become -2^31.
DODONA_INLINE i32x16 to_i32_trunc(f32x16 a) {
  return {lanes::to_i32_trunc(a.v)};
}

DODONA_INLINE f32x16 bit_and(f32x16 a, f32x16 b) {
  return as_f32(as_i32(a) & as_i32(b));
}
DODONA_INLINE f32x16 bit_or(f32x16 a, f32x16 b) {
  return as_f32(as_i32(a) | as_i32(b));
}
DODONA_INLINE f32x16 bit_xor(f32x16 a, f32x16 b) {
  return as_f32(as_i32(a) ^ as_i32(b));
}
DODONA_INLINE f32x16 abs(f32x16 a) {
  return as_f32(as_i32(a) & i32x16::splat(0x7FFFFFFF));
}
/// Flips the sign bit, also of zeros and NaNs.
DODONA_INLINE f32x16 operator-(f32x16 a) {
  return bit_xor(a, f32x16::splat(-0.0f));
}
/// The sign bit alone: a zero with a's sign.
DODONA_INLINE f32x16 sign_of(f32x16 a) {
  return bit_and(a, f32x16::splat(-0.0f));
}
DODONA_INLINE f32x16 copysign(f32x16 magnitude, f32x16 sign) {
  return bit_or(abs(magnitude), sign_of(sign));
}
/// Every NaN becomes 0x7FFFFFFF, the NaN of GPU arithmetic.
DODONA_INLINE f32x16 canonical_nan(f32x16 a) {
  return select(a == a, a, as_f32(i32x16::splat(0x7FFFFFFF)));
}

// ---- across lanes

/// Tree of + over lanes; see the head of this file.
DODONA_INLINE float reduce_add(f32x16 a) {
  return lanes::reduce_add(a.v);
}
/// The same tree of min: the smallest lane when there is no NaN.
DODONA_INLINE float reduce_min(f32x16 a) {
  return lanes::reduce_min(a.v);
}
/// The same tree of max: the largest lane when there is no NaN.
DODONA_INLINE float reduce_max(f32x16 a) {
  return lanes::reduce_max(a.v);
}

/// Lane i holds i.
DODONA_INLINE i32x16 lane_index() {
  constexpr std::int32_t index[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return i32x16::load(index);
}

struct f32x16_pair {
  f32x16 first, second;
};
/// Of the 32 elements a, b: those of even index, those of odd index.
DODONA_INLINE f32x16_pair deinterleave(f32x16 a, f32x16 b) {
  lanes::deinterleave(a.v, b.v);
  return {a, b};
}
/// The inverse: even[0], odd[0], even[1], odd[1]...
DODONA_INLINE f32x16_pair interleave(f32x16 even, f32x16 odd) {
  lanes::interleave(even.v, odd.v);
  return {even, odd};
}

/// Lane `index` mod 16 of a table. Made for tiers that have one register for it; on AArch64 it goes through memory.
DODONA_INLINE f32x16 lookup_16(f32x16 table, i32x16 index) {
  return {lanes::lookup_16(table.v, index.v)};
}

/// Lane j of row i becomes lane i of row j.
DODONA_INLINE void transpose(f32x16 (&rows)[16]) {
  lanes::f32 r[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = rows[i].v;
  lanes::transpose(r);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i].v = r[i];
}
DODONA_INLINE void transpose(i32x16 (&rows)[16]) {
  f32x16 r[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = as_f32(rows[i]);
  transpose(r);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = as_i32(r[i]);
}

/// Lane i: reduce_add(rows[i]).
DODONA_INLINE f32x16 reduce_add(const f32x16 (&rows)[16]) {
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
  lanes::f32 r[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = rows[i].v;
  return {lanes::reduce_add(r)};
#else
  f32x16 lane[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) lane[i] = rows[i];
  transpose(lane);
#pragma GCC unroll 4
  for (int half = 8; half > 0; half /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) lane[i] = lane[i] + lane[i + half];
  return lane[0];
#endif
}

}  // namespace dodona::DODONA_TIER
