// Two registers as one of twice the width: every operation on both halves.
//
// Only for the lanes_*.h files of instruction sets whose registers hold fewer than 16 floats.
#pragma once

#include <cstdint>

#include "simd/inline.h"

namespace dodona::DODONA_TIER::lanes {

template <class T>
struct twin {
  static constexpr int size = 2 * T::size;
  T lo, hi;

  template <class Scalar>
  static DODONA_INLINE twin load(const Scalar* p) {
    return {T::load(p), T::load(p + T::size)};
  }
  /// 0 <= n <= size; the other lanes are zero.
  template <class Scalar>
  static DODONA_INLINE twin load_first(const Scalar* p, int n) {
    if (n <= T::size) return {T::load_first(p, n), T::zero()};
    return {T::load(p), T::load_first(p + T::size, n - T::size)};
  }
  template <class Scalar>
  static DODONA_INLINE twin splat(Scalar x) {
    return {T::splat(x), T::splat(x)};
  }
  static DODONA_INLINE twin zero() { return {T::zero(), T::zero()}; }
  static DODONA_INLINE twin from_bits(std::uint32_t bits) { return {T::from_bits(bits), T::from_bits(bits >> T::size)}; }

  template <class Scalar>
  DODONA_INLINE void store(Scalar* p) const {
    lo.store(p);
    hi.store(p + T::size);
  }
  template <class Scalar>
  DODONA_INLINE void store_first(Scalar* p, int n) const {
    if (n <= T::size) return lo.store_first(p, n);
    lo.store(p);
    hi.store_first(p + T::size, n - T::size);
  }
  DODONA_INLINE std::uint32_t to_bits() const { return lo.to_bits() | (hi.to_bits() << T::size); }
};

template <class T>
DODONA_INLINE twin<T> add(twin<T> a, twin<T> b) {
  return {add(a.lo, b.lo), add(a.hi, b.hi)};
}
template <class T>
DODONA_INLINE twin<T> sub(twin<T> a, twin<T> b) {
  return {sub(a.lo, b.lo), sub(a.hi, b.hi)};
}
template <class T>
DODONA_INLINE twin<T> mul(twin<T> a, twin<T> b) {
  return {mul(a.lo, b.lo), mul(a.hi, b.hi)};
}
template <class T>
DODONA_INLINE twin<T> div(twin<T> a, twin<T> b) {
  return {div(a.lo, b.lo), div(a.hi, b.hi)};
}
template <class T>
DODONA_INLINE twin<T> fma(twin<T> a, twin<T> b, twin<T> c) {
  return {fma(a.lo, b.lo, c.lo), fma(a.hi, b.hi, c.hi)};
}
template <class T>
DODONA_INLINE twin<T> fnma(twin<T> a, twin<T> b, twin<T> c) {
  return {fnma(a.lo, b.lo, c.lo), fnma(a.hi, b.hi, c.hi)};
}
template <class T>
DODONA_INLINE twin<T> fms(twin<T> a, twin<T> b, twin<T> c) {
  return {fms(a.lo, b.lo, c.lo), fms(a.hi, b.hi, c.hi)};
}
template <class T>
DODONA_INLINE twin<T> min(twin<T> a, twin<T> b) {
  return {min(a.lo, b.lo), min(a.hi, b.hi)};
}
template <class T>
DODONA_INLINE twin<T> max(twin<T> a, twin<T> b) {
  return {max(a.lo, b.lo), max(a.hi, b.hi)};
}
template <class T>
DODONA_INLINE twin<T> sqrt(twin<T> a) {
  return {sqrt(a.lo), sqrt(a.hi)};
}
template <class T>
DODONA_INLINE twin<T> floor(twin<T> a) {
  return {floor(a.lo), floor(a.hi)};
}
template <class T>
DODONA_INLINE twin<T> round_even(twin<T> a) {
  return {round_even(a.lo), round_even(a.hi)};
}

template <class T>
DODONA_INLINE auto lt(twin<T> a, twin<T> b) -> twin<decltype(lt(a.lo, b.lo))> {
  return {lt(a.lo, b.lo), lt(a.hi, b.hi)};
}
template <class T>
DODONA_INLINE auto le(twin<T> a, twin<T> b) -> twin<decltype(le(a.lo, b.lo))> {
  return {le(a.lo, b.lo), le(a.hi, b.hi)};
}
template <class T>
DODONA_INLINE auto eq(twin<T> a, twin<T> b) -> twin<decltype(eq(a.lo, b.lo))> {
  return {eq(a.lo, b.lo), eq(a.hi, b.hi)};
}
template <class M, class T>
DODONA_INLINE twin<T> select(twin<M> m, twin<T> a, twin<T> b) {
  return {select(m.lo, a.lo, b.lo), select(m.hi, a.hi, b.hi)};
}

template <class T>
DODONA_INLINE twin<T> bit_and(twin<T> a, twin<T> b) {
  return {bit_and(a.lo, b.lo), bit_and(a.hi, b.hi)};
}
template <class T>
DODONA_INLINE twin<T> bit_or(twin<T> a, twin<T> b) {
  return {bit_or(a.lo, b.lo), bit_or(a.hi, b.hi)};
}
template <class T>
DODONA_INLINE twin<T> bit_xor(twin<T> a, twin<T> b) {
  return {bit_xor(a.lo, b.lo), bit_xor(a.hi, b.hi)};
}
template <class T>
DODONA_INLINE twin<T> bit_not(twin<T> a) {
  return {bit_not(a.lo), bit_not(a.hi)};
}
template <int k, class T>
DODONA_INLINE twin<T> shl(twin<T> a) {
  return {shl<k>(a.lo), shl<k>(a.hi)};
}
template <int k, class T>
DODONA_INLINE twin<T> shr(twin<T> a) {
  return {shr<k>(a.lo), shr<k>(a.hi)};
}
template <int k, class T>
DODONA_INLINE twin<T> sra(twin<T> a) {
  return {sra<k>(a.lo), sra<k>(a.hi)};
}
template <class T>
DODONA_INLINE twin<T> add_8(twin<T> a, twin<T> b) {
  return {add_8(a.lo, b.lo), add_8(a.hi, b.hi)};
}
template <class T>
DODONA_INLINE twin<T> mul_16(twin<T> a, twin<T> b) {
  return {mul_16(a.lo, b.lo), mul_16(a.hi, b.hi)};
}
template <class T>
DODONA_INLINE twin<T> max_16(twin<T> a, twin<T> b) {
  return {max_16(a.lo, b.lo), max_16(a.hi, b.hi)};
}
template <int k, class T>
DODONA_INLINE twin<T> sra_16(twin<T> a) {
  return {sra_16<k>(a.lo), sra_16<k>(a.hi)};
}

template <class T>
DODONA_INLINE auto as_i32(twin<T> a) -> twin<decltype(as_i32(a.lo))> {
  return {as_i32(a.lo), as_i32(a.hi)};
}
template <class T>
DODONA_INLINE auto as_f32(twin<T> a) -> twin<decltype(as_f32(a.lo))> {
  return {as_f32(a.lo), as_f32(a.hi)};
}
template <class T>
DODONA_INLINE auto to_f32(twin<T> a) -> twin<decltype(to_f32(a.lo))> {
  return {to_f32(a.lo), to_f32(a.hi)};
}
template <class T>
DODONA_INLINE auto to_i32(twin<T> a) -> twin<decltype(to_i32(a.lo))> {
  return {to_i32(a.lo), to_i32(a.hi)};
}
template <class T>
DODONA_INLINE auto to_i32_trunc(twin<T> a) -> twin<decltype(to_i32_trunc(a.lo))> {
  return {to_i32_trunc(a.lo), to_i32_trunc(a.hi)};
}

template <class T>
DODONA_INLINE float reduce_add(twin<T> a) {
  return reduce_add(add(a.lo, a.hi));
}
template <class T>
DODONA_INLINE float reduce_min(twin<T> a) {
  return reduce_min(min(a.lo, a.hi));
}
template <class T>
DODONA_INLINE float reduce_max(twin<T> a) {
  return reduce_max(max(a.lo, a.hi));
}

template <class T>
DODONA_INLINE twin<T> dpbusd(twin<T> acc, twin<T> a, twin<T> b) {
  return {dpbusd(acc.lo, a.lo, b.lo), dpbusd(acc.hi, a.hi, b.hi)};
}
template <class T>
DODONA_INLINE twin<T> dpbusd_small(twin<T> acc, twin<T> a, twin<T> b) {
  return {dpbusd_small(acc.lo, a.lo, b.lo), dpbusd_small(acc.hi, a.hi, b.hi)};
}
template <class T>
DODONA_INLINE twin<T> dot16_small(twin<T> acc, const twin<T> (&a)[4], const twin<T> (&b)[4]) {
  return {dot16_small(acc.lo, {a[0].lo, a[1].lo, a[2].lo, a[3].lo}, {b[0].lo, b[1].lo, b[2].lo, b[3].lo}),
          dot16_small(acc.hi, {a[0].hi, a[1].hi, a[2].hi, a[3].hi}, {b[0].hi, b[1].hi, b[2].hi, b[3].hi})};
}
template <class T>
DODONA_INLINE twin<T> lookup_bytes(twin<T> table, twin<T> indices) {
  return {lookup_bytes(table.lo, indices.lo), lookup_bytes(table.hi, indices.hi)};
}

/// (a, b) -> (even elements, odd elements) of the sequence a, b.
template <class T>
DODONA_INLINE void deinterleave(twin<T>& a, twin<T>& b) {
  deinterleave(a.lo, a.hi);
  deinterleave(b.lo, b.hi);
  const T odd_lo = a.hi;
  a.hi = b.lo;
  b.lo = odd_lo;
}
template <class T>
DODONA_INLINE void interleave(twin<T>& even, twin<T>& odd) {
  T a = even.lo, b = odd.lo, c = even.hi, d = odd.hi;
  interleave(a, b);
  interleave(c, d);
  even = {a, b};
  odd = {c, d};
}

}  // namespace dodona::DODONA_TIER::lanes
