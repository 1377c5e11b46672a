// The vectors in which products keep their sums: sixteen lanes, or where those take two registers, one of these. Included by *.simd.cpp
// only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simd/bf16_pairs.h"
#include "simd/f32x16.h"

namespace dodona::DODONA_TIER {

DODONA_INLINE std::int32_t word_at(const std::byte* p) {
  std::int32_t word = 0;
  __builtin_memcpy(&word, p, sizeof word);
  return word;
}

#if DODONA_TIER_v3
/// Half of f32x16, and what it promises.
struct f32x8 {
  lanes::f32x8 v;

  static DODONA_INLINE f32x8 load(const float* p) { return {lanes::f32x8::load(p)}; }
  static DODONA_INLINE f32x8 splat(float x) { return {lanes::f32x8::splat(x)}; }
  static DODONA_INLINE f32x8 zero() { return {lanes::f32x8::zero()}; }
  DODONA_INLINE void store(float* p) const { v.store(p); }
};
DODONA_INLINE f32x8 operator+(f32x8 a, f32x8 b) {
  return {lanes::add(a.v, b.v)};
}
DODONA_INLINE f32x8 operator*(f32x8 a, f32x8 b) {
  return {lanes::mul(a.v, b.v)};
}
DODONA_INLINE f32x8 fma(f32x8 a, f32x8 b, f32x8 c) {
  return {lanes::fma(a.v, b.v, c.v)};
}
using SumLanes = f32x8;
inline constexpr int sum_lanes = 8;

/// Pairs of bf16 in words (simd/bf16_pairs.h), as many as sums have lanes.
struct SumPairs {
  lanes::i32x8 words;

  static DODONA_INLINE SumPairs load(const std::int32_t* p) { return {lanes::i32x8::load(p)}; }
  /// The same pair of numbers in all lanes.
  static DODONA_INLINE SumPairs splat(const std::byte* p) { return {lanes::i32x8::splat(word_at(p))}; }
  DODONA_INLINE SumLanes even() const { return {lanes::as_f32(lanes::shl<16>(words))}; }
  DODONA_INLINE SumLanes odd() const { return {lanes::as_f32(lanes::bit_and(words, lanes::i32x8::splat(-0x10000)))}; }
};
#else
using SumLanes = f32x16;
inline constexpr int sum_lanes = 16;

struct SumPairs {
  i32x16 words;

  static DODONA_INLINE SumPairs load(const std::int32_t* p) { return {i32x16::load(p)}; }
  static DODONA_INLINE SumPairs splat(const std::byte* p) { return {i32x16::splat(word_at(p))}; }
  DODONA_INLINE SumLanes even() const { return even_of_pairs(words); }
  DODONA_INLINE SumLanes odd() const { return odd_of_pairs(words); }
};
#endif

/// Between rounds of a loop: keeps sums in registers where these are just enough. GCC lets some of them go through memory otherwise, and
/// the next round waits for it.
template <class Vector>
DODONA_INLINE void stay(Vector& a, Vector& b, Vector& c, Vector& d) {
#if DODONA_TIER_v3
  asm(""
      : "+x"(a.v.lo.v.data), "+x"(a.v.hi.v.data), "+x"(b.v.lo.v.data), "+x"(b.v.hi.v.data), "+x"(c.v.lo.v.data), "+x"(c.v.hi.v.data),
        "+x"(d.v.lo.v.data), "+x"(d.v.hi.v.data));
#else
  (void)a, (void)b, (void)c, (void)d;
#endif
}
template <class Vector>
DODONA_INLINE void stay(Vector& sum) {
#if DODONA_TIER_v3
  asm("" : "+x"(sum.v.lo.v.data), "+x"(sum.v.hi.v.data));
#else
  (void)sum;
#endif
}

/// Numbers that lie in memory from here on: GCC would take some of them along in registers that sums need, and move those instead.
template <std::size_t size>
DODONA_INLINE void lie(float (&numbers)[size]) {
#if DODONA_TIER_v3
  asm("" : "+m"(numbers));
#else
  (void)numbers;
#endif
}

/// An address that has nothing to do with others from here on: GCC would keep every sum of it and an offset in a register, of which there
/// are not as many.
DODONA_INLINE void lie_apart(const float*& address) {
  asm("" : "+r"(address));
}

}  // namespace dodona::DODONA_TIER
