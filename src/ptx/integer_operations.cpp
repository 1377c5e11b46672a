// Whole numbers and bits.
#include <algorithm>
#include <array>
#include <limits>

#include "ptx/lanes.h"

namespace dodona::ptx {
namespace {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using s16 = std::int16_t;
using u32 = std::uint32_t;
using s32 = std::int32_t;
using u64 = std::uint64_t;
using s64 = std::int64_t;
__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 s128;

/// Arithmetic that wraps.
template <class T>
using Wrap = std::conditional_t<sizeof(T) == 8, u64, u32>;

template <class T>
T add(T a, T b) {
  return static_cast<T>(static_cast<Wrap<T>>(a) + static_cast<Wrap<T>>(b));
}
template <class T>
T sub(T a, T b) {
  return static_cast<T>(static_cast<Wrap<T>>(a) - static_cast<Wrap<T>>(b));
}
template <class T>
T mul_lo(T a, T b) {
  return static_cast<T>(static_cast<Wrap<T>>(a) * static_cast<Wrap<T>>(b));
}
template <class T>
T mad_lo(T a, T b, T c) {
  return add<T>(mul_lo<T>(a, b), c);
}
template <class T, class Twice>
Twice mul_wide(T a, T b) {
  return static_cast<Twice>(static_cast<Wrap<Twice>>(static_cast<Twice>(a)) * static_cast<Wrap<Twice>>(static_cast<Twice>(b)));
}
template <class T, class Twice>
Twice mad_wide(T a, T b, Twice c) {
  return add<Twice>(mul_wide<T, Twice>(a, b), c);
}
template <class T, class Twice>
T mul_hi(T a, T b) {
  return static_cast<T>(static_cast<Twice>(a) * static_cast<Twice>(b) >> (8 * sizeof(T)));
}
template <class T, class Twice>
T mad_hi(T a, T b, T c) {
  return add<T>(mul_hi<T, Twice>(a, b), c);
}
s32 add_sat(s32 a, s32 b) {
  return static_cast<s32>(std::clamp<s64>(s64{a} + b, std::numeric_limits<s32>::min(), std::numeric_limits<s32>::max()));
}
s32 sub_sat(s32 a, s32 b) {
  return static_cast<s32>(std::clamp<s64>(s64{a} - b, std::numeric_limits<s32>::min(), std::numeric_limits<s32>::max()));
}
/// As the machine divides: by zero, all ones; the lowest by -1, itself.
template <class T>
T div(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return sub<T>(0, a);
  return static_cast<T>(a / b);
}
template <class T>
T rem(T a, T b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return static_cast<T>(a % b);
}
template <class T>
T neg(T a) {
  return sub<T>(0, a);
}
template <class T>
T absolute(T a) {
  return a < 0 ? neg<T>(a) : a;
}
template <class T>
T smaller(T a, T b) {
  return a < b ? a : b;
}
template <class T>
T larger(T a, T b) {
  return a > b ? a : b;
}
template <class T>
T bit_and(T a, T b) {
  return static_cast<T>(a & b);
}
template <class T>
T bit_or(T a, T b) {
  return static_cast<T>(a | b);
}
template <class T>
T bit_xor(T a, T b) {
  return static_cast<T>(a ^ b);
}
template <class T>
T bit_not(T a) {
  return static_cast<T>(~a);
}
template <class T>
T cnot(T a) {
  return a == 0 ? 1 : 0;
}
template <class T>
T shl(T a, u32 by) {
  return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(static_cast<Wrap<T>>(a) << by);
}
template <class T>
T shr(T a, u32 by) {
  if (by >= 8 * sizeof(T)) return static_cast<T>(a < 0 ? -1 : 0);
  return static_cast<T>(a >> by);
}
template <class T>
T bfe(T a, u32 begin, u32 length) {
  constexpr u32 size = 8 * sizeof(T);
  begin &= 0xFF;
  length &= 0xFF;
  if (length == 0) return 0;
  const u64 wide = std::is_signed_v<T> ? static_cast<u64>(static_cast<s64>(a)) : static_cast<u64>(a);
  // Beyond the top the sign goes on.
  const u64 shifted = begin >= size ? (std::is_signed_v<T> && a < 0 ? ~u64{0} : 0)
                                    : (std::is_signed_v<T> ? static_cast<u64>(static_cast<s64>(wide) >> begin) : wide >> begin);
  if (length >= 64) return static_cast<T>(shifted);
  const u64 kept = shifted & ((u64{1} << length) - 1);
  const bool negative = std::is_signed_v<T> && (kept >> (length - 1) & 1) != 0;
  return static_cast<T>(negative ? kept | ~((u64{1} << length) - 1) : kept);
}
template <class T>
T bfi(T a, T b, u32 begin, u32 length) {
  constexpr u32 size = 8 * sizeof(T);
  begin &= 0xFF;
  length &= 0xFF;
  if (length == 0 || begin >= size) return b;
  const T ones = length >= size ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << length) - 1);
  const T mask = static_cast<T>(ones << begin);
  return static_cast<T>((b & ~mask) | ((a << begin) & mask));
}
u32 popc32(u32 a) {
  return static_cast<u32>(std::popcount(a));
}
u32 popc64(u64 a) {
  return static_cast<u32>(std::popcount(a));
}
u32 clz32(u32 a) {
  return static_cast<u32>(std::countl_zero(a));
}
u32 clz64(u64 a) {
  return static_cast<u32>(std::countl_zero(a));
}
template <class T>
u32 bfind(T a) {
  if constexpr (std::is_signed_v<T>)
    if (a < 0) a = static_cast<T>(~a);
  using U = std::make_unsigned_t<T>;
  return a == 0 ? 0xFFFFFFFFu : static_cast<u32>(8 * sizeof(T) - 1) - static_cast<u32>(std::countl_zero(static_cast<U>(a)));
}
template <class T>
u32 bfind_shift(T a) {
  const u32 at = bfind<T>(a);
  return at == 0xFFFFFFFFu ? at : static_cast<u32>(8 * sizeof(T) - 1) - at;
}
template <class T>
T brev(T a) {
  T r = 0;
  for (unsigned i = 0; i < 8 * sizeof(T); ++i) r = static_cast<T>(r | (a >> i & T{1}) << (8 * sizeof(T) - 1 - i));
  return r;
}
u32 fns(u32 bits, u32 base, s32 offset) {
  if (base > 31) return 0xFFFFFFFFu;
  if (offset == 0) return bits >> base & 1u ? base : 0xFFFFFFFFu;
  const int step = offset > 0 ? 1 : -1;
  int left = std::abs(offset);
  for (int at = static_cast<int>(base); at >= 0 && at < 32; at += step)
    if ((bits >> at & 1u) != 0 && --left == 0) return static_cast<u32>(at);
  return 0xFFFFFFFFu;
}
template <class T>
T sad(T a, T b, T c) {
  const auto d = a < b ? sub<T>(b, a) : sub<T>(a, b);
  return add<T>(c, d);
}
u32 prmt(u32 a, u32 b, u32 selector) {
  const u64 both = u64{b} << 32 | a;
  u32 r = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 nibble = selector >> (4 * i) & 15;
    u32 byte = static_cast<u32>(both >> (8 * (nibble & 7))) & 0xFF;
    if (nibble & 8) byte = byte & 0x80 ? 0xFF : 0;
    r |= byte << (8 * i);
  }
  return r;
}
/// prmt's named forms, as selectors of each of the four cases of c.
template <int form>
u32 prmt_form(u32 a, u32 b, u32 c) {
  constexpr u32 selectors[6][4] = {{0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123}, {0x0000, 0x1111, 0x2222, 0x3333},
                                   {0x3210, 0x3211, 0x3222, 0x3333}, {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
  return prmt(a, b, selectors[form][c & 3]);
}
u32 lop3(u32 a, u32 b, u32 c, u32 table) {
  u32 r = 0;
  for (u32 i = 0; i < 8; ++i)
    if (table >> i & 1) r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  return r;
}
template <bool left, bool wraps>
u32 funnel(u32 a, u32 b, u32 by) {
  const u32 n = wraps ? by & 31 : std::min<u32>(by, 32);
  const u64 both = u64{b} << 32 | a;
  return left ? static_cast<u32>(both << n >> 32) : static_cast<u32>(both >> n);
}
template <class A, class B>
s32 dp4a(u32 a, u32 b, s32 c) {
  u32 sum = static_cast<u32>(c);
  for (int i = 0; i < 32; i += 8)
    sum += static_cast<u32>(static_cast<s32>(static_cast<A>(a >> i)) * static_cast<s32>(static_cast<B>(b >> i)));
  return static_cast<s32>(sum);
}
template <class A, class B, int half>
s32 dp2a(u32 a, u32 b, s32 c) {
  u32 sum = static_cast<u32>(c);
  using A16 = std::conditional_t<std::is_signed_v<A>, s16, u16>;
  for (int i = 0; i < 2; ++i)
    sum += static_cast<u32>(static_cast<s32>(static_cast<A16>(a >> (16 * i))) * static_cast<s32>(static_cast<B>(b >> (16 * half + 8 * i))));
  return static_cast<s32>(sum);
}
template <class T, T (*f)(T, T)>
u32 of_halves(u32 a, u32 b) {
  const auto low = static_cast<u16>(f(static_cast<T>(a), static_cast<T>(b)));
  const auto high = static_cast<u16>(f(static_cast<T>(a >> 16), static_cast<T>(b >> 16)));
  return u32{high} << 16 | low;
}
template <bool clamps>
u32 bmsk(u32 begin, u32 length) {
  if (clamps) {
    begin = std::min<u32>(begin, 32);
    length = std::min<u32>(length, 32);
  } else {
    begin &= 31;
    length &= 31;
  }
  const u64 ones = ((u64{1} << length) - 1) << begin;
  return static_cast<u32>(ones);
}
/// The field of `length` bits at the bottom, with its sign or with zeros above.
template <bool is_signed, bool clamps>
u32 szext(u32 a, u32 length) {
  length = clamps ? std::min<u32>(length, 32) : length & 31;
  if (length == 0) return 0;
  const u32 up = 32 - length;
  return is_signed ? static_cast<u32>(static_cast<s32>(a << up) >> up) : a << up >> up;
}
/// Products of the low 24 bits: the low word, or bits 16 to 47.
template <class T, bool high>
T mul24(T a, T b) {
  const auto bits = [](T x) {
    return static_cast<s64>(std::is_signed_v<T> ? static_cast<s32>(static_cast<u32>(x) << 8) >> 8 : x & 0xFFFFFF);
  };
  return static_cast<T>(bits(a) * bits(b) >> (high ? 16 : 0));
}
template <class T, bool high>
T mad24(T a, T b, T c) {
  return add<T>(mul24<T, high>(a, b), c);
}
s32 mad24_hi_sat(s32 a, s32 b, s32 c) {
  return add_sat(mul24<s32, true>(a, b), c);
}
s32 mad_hi_sat(s32 a, s32 b, s32 c) {
  return add_sat(mul_hi<s32, s64>(a, b), c);
}
template <class T>
T smaller_relu(T a, T b) {
  return larger<T>(smaller<T>(a, b), 0);
}
template <class T>
T larger_relu(T a, T b) {
  return larger<T>(larger<T>(a, b), 0);
}
template <class T>
T select(T a, T b, bool p) {
  return p ? a : b;
}
template <class T>
T same(T a) {
  return a;
}
template <class T>
T slct(T a, T b, s32 c) {
  return c >= 0 ? a : b;
}
template <class T>
T slct_f(T a, T b, float c) {
  return !(c < 0.0f) && c == c ? a : b;
}
bool is_space(u64) {
  return true;
}

template <class T>
bool eq(T a, T b) {
  return a == b;
}
template <class T>
bool ne(T a, T b) {
  return a != b;
}
template <class T>
bool lt(T a, T b) {
  return a < b;
}
template <class T>
bool le(T a, T b) {
  return a <= b;
}
template <class T>
bool gt(T a, T b) {
  return a > b;
}
template <class T>
bool ge(T a, T b) {
  return a >= b;
}
bool p_and(bool a, bool b) {
  return a && b;
}
bool p_or(bool a, bool b) {
  return a || b;
}
bool p_xor(bool a, bool b) {
  return a != b;
}
bool p_not(bool a) {
  return !a;
}

constexpr Operation table[] = {
    operation<add<u32>>("add.u32"),
    operation<add<u32>>("add.s32"),
    operation<add<u64>>("add.u64"),
    operation<add<u64>>("add.s64"),
    operation<add<u16>>("add.u16"),
    operation<add<u16>>("add.s16"),
    operation<add_sat>("add.sat.s32"),
    operation<of_halves<u16, add<u16>>>("add.u16x2"),
    operation<of_halves<u16, add<u16>>>("add.s16x2"),
    operation<sub<u32>>("sub.u32"),
    operation<sub<u32>>("sub.s32"),
    operation<sub<u64>>("sub.u64"),
    operation<sub<u64>>("sub.s64"),
    operation<sub<u16>>("sub.u16"),
    operation<sub<u16>>("sub.s16"),
    operation<sub_sat>("sub.sat.s32"),
    operation<mul_lo<u32>>("mul.lo.u32"),
    operation<mul_lo<u32>>("mul.lo.s32"),
    operation<mul_lo<u64>>("mul.lo.u64"),
    operation<mul_lo<u64>>("mul.lo.s64"),
    operation<mul_lo<u16>>("mul.lo.u16"),
    operation<mul_lo<u16>>("mul.lo.s16"),
    operation<mul_hi<u32, u64>>("mul.hi.u32"),
    operation<mul_hi<s32, s64>>("mul.hi.s32"),
    operation<mul_hi<u64, u128>>("mul.hi.u64"),
    operation<mul_hi<s64, s128>>("mul.hi.s64"),
    operation<mul_hi<u16, u32>>("mul.hi.u16"),
    operation<mul_hi<s16, s32>>("mul.hi.s16"),
    operation<mul_wide<u16, u32>>("mul.wide.u16"),
    operation<mul_wide<s16, s32>>("mul.wide.s16"),
    operation<mul_wide<u32, u64>>("mul.wide.u32"),
    operation<mul_wide<s32, s64>>("mul.wide.s32"),
    operation<mad_lo<u32>>("mad.lo.u32"),
    operation<mad_lo<u32>>("mad.lo.s32"),
    operation<mad_lo<u64>>("mad.lo.u64"),
    operation<mad_lo<u64>>("mad.lo.s64"),
    operation<mad_lo<u16>>("mad.lo.u16"),
    operation<mad_lo<u16>>("mad.lo.s16"),
    operation<mad_wide<u16, u32>>("mad.wide.u16"),
    operation<mad_wide<s16, s32>>("mad.wide.s16"),
    operation<mad_wide<u32, u64>>("mad.wide.u32"),
    operation<mad_wide<s32, s64>>("mad.wide.s32"),
    operation<mad_hi<u32, u64>>("mad.hi.u32"),
    operation<mad_hi<s32, s64>>("mad.hi.s32"),
    operation<mad_hi<u64, u128>>("mad.hi.u64"),
    operation<mad_hi<s64, s128>>("mad.hi.s64"),
    operation<div<u32>>("div.u32"),
    operation<div<s32>>("div.s32"),
    operation<div<u64>>("div.u64"),
    operation<div<s64>>("div.s64"),
    operation<div<u16>>("div.u16"),
    operation<div<s16>>("div.s16"),
    operation<rem<u32>>("rem.u32"),
    operation<rem<s32>>("rem.s32"),
    operation<rem<u64>>("rem.u64"),
    operation<rem<s64>>("rem.s64"),
    operation<rem<u16>>("rem.u16"),
    operation<rem<s16>>("rem.s16"),
    operation<neg<u32>>("neg.s32"),
    operation<neg<u64>>("neg.s64"),
    operation<neg<u16>>("neg.s16"),
    operation<absolute<s32>>("abs.s32"),
    operation<absolute<s64>>("abs.s64"),
    operation<absolute<s16>>("abs.s16"),
    operation<smaller<u32>>("min.u32"),
    operation<smaller<s32>>("min.s32"),
    operation<smaller<u64>>("min.u64"),
    operation<smaller<s64>>("min.s64"),
    operation<smaller<u16>>("min.u16"),
    operation<smaller<s16>>("min.s16"),
    operation<of_halves<u16, smaller<u16>>>("min.u16x2"),
    operation<of_halves<s16, smaller<s16>>>("min.s16x2"),
    operation<larger<u32>>("max.u32"),
    operation<larger<s32>>("max.s32"),
    operation<larger<u64>>("max.u64"),
    operation<larger<s64>>("max.s64"),
    operation<larger<u16>>("max.u16"),
    operation<larger<s16>>("max.s16"),
    operation<of_halves<u16, larger<u16>>>("max.u16x2"),
    operation<of_halves<s16, larger<s16>>>("max.s16x2"),
    operation<bit_and<u32>>("and.b32"),
    operation<bit_and<u64>>("and.b64"),
    operation<bit_and<u16>>("and.b16"),
    operation<bit_or<u32>>("or.b32"),
    operation<bit_or<u64>>("or.b64"),
    operation<bit_or<u16>>("or.b16"),
    operation<bit_xor<u32>>("xor.b32"),
    operation<bit_xor<u64>>("xor.b64"),
    operation<bit_xor<u16>>("xor.b16"),
    operation<bit_not<u32>>("not.b32"),
    operation<bit_not<u64>>("not.b64"),
    operation<bit_not<u16>>("not.b16"),
    operation<cnot<u32>>("cnot.b32"),
    operation<cnot<u64>>("cnot.b64"),
    operation<cnot<u16>>("cnot.b16"),
    operation<shl<u32>>("shl.b32"),
    operation<shl<u64>>("shl.b64"),
    operation<shl<u16>>("shl.b16"),
    operation<shr<u32>>("shr.u32"),
    operation<shr<u32>>("shr.b32"),
    operation<shr<s32>>("shr.s32"),
    operation<shr<u64>>("shr.u64"),
    operation<shr<u64>>("shr.b64"),
    operation<shr<s64>>("shr.s64"),
    operation<shr<u16>>("shr.u16"),
    operation<shr<u16>>("shr.b16"),
    operation<shr<s16>>("shr.s16"),
    operation<bfe<u32>>("bfe.u32"),
    operation<bfe<s32>>("bfe.s32"),
    operation<bfe<u64>>("bfe.u64"),
    operation<bfe<s64>>("bfe.s64"),
    operation<bfi<u32>>("bfi.b32"),
    operation<bfi<u64>>("bfi.b64"),
    operation<popc32>("popc.b32"),
    operation<popc64>("popc.b64"),
    operation<clz32>("clz.b32"),
    operation<clz64>("clz.b64"),
    operation<bfind<u32>>("bfind.u32"),
    operation<bfind<s32>>("bfind.s32"),
    operation<bfind<u64>>("bfind.u64"),
    operation<bfind<s64>>("bfind.s64"),
    operation<bfind_shift<u32>>("bfind.shiftamt.u32"),
    operation<bfind_shift<s32>>("bfind.shiftamt.s32"),
    operation<brev<u32>>("brev.b32"),
    operation<brev<u64>>("brev.b64"),
    operation<fns>("fns.b32"),
    operation<sad<u32>>("sad.u32"),
    operation<sad<s32>>("sad.s32"),
    operation<sad<u16>>("sad.u16"),
    operation<sad<s16>>("sad.s16"),
    operation<sad<u64>>("sad.u64"),
    operation<sad<s64>>("sad.s64"),
    operation<mad_hi<u16, u32>>("mad.hi.u16"),
    operation<mad_hi<s16, s32>>("mad.hi.s16"),
    operation<mad_hi_sat>("mad.hi.sat.s32"),
    operation<mul24<u32, false>>("mul24.lo.u32"),
    operation<mul24<s32, false>>("mul24.lo.s32"),
    operation<mul24<u32, true>>("mul24.hi.u32"),
    operation<mul24<s32, true>>("mul24.hi.s32"),
    operation<mad24<u32, false>>("mad24.lo.u32"),
    operation<mad24<s32, false>>("mad24.lo.s32"),
    operation<mad24<u32, true>>("mad24.hi.u32"),
    operation<mad24<s32, true>>("mad24.hi.s32"),
    operation<mad24_hi_sat>("mad24.hi.sat.s32"),
    operation<szext<false, true>>("szext.clamp.u32"),
    operation<szext<false, false>>("szext.wrap.u32"),
    operation<szext<true, true>>("szext.clamp.s32"),
    operation<szext<true, false>>("szext.wrap.s32"),
    operation<smaller_relu<s32>>("min.relu.s32"),
    operation<larger_relu<s32>>("max.relu.s32"),
    operation<of_halves<s16, smaller_relu<s16>>>("min.relu.s16x2"),
    operation<of_halves<s16, larger_relu<s16>>>("max.relu.s16x2"),
    operation<bfind_shift<u64>>("bfind.shiftamt.u64"),
    operation<bfind_shift<s64>>("bfind.shiftamt.s64"),
    operation<dp2a<u8, std::int8_t, 0>>("dp2a.lo.u32.s32"),
    operation<dp2a<u8, std::int8_t, 1>>("dp2a.hi.u32.s32"),
    operation<dp2a<std::int8_t, u8, 0>>("dp2a.lo.s32.u32"),
    operation<dp2a<std::int8_t, u8, 1>>("dp2a.hi.s32.u32"),
    operation<prmt>("prmt.b32"),
    operation<prmt_form<0>>("prmt.b32.f4e"),
    operation<prmt_form<1>>("prmt.b32.b4e"),
    operation<prmt_form<2>>("prmt.b32.rc8"),
    operation<prmt_form<3>>("prmt.b32.ecl"),
    operation<prmt_form<4>>("prmt.b32.ecr"),
    operation<prmt_form<5>>("prmt.b32.rc16"),
    operation<lop3>("lop3.b32"),
    operation<funnel<true, true>>("shf.l.wrap.b32"),
    operation<funnel<true, false>>("shf.l.clamp.b32"),
    operation<funnel<false, true>>("shf.r.wrap.b32"),
    operation<funnel<false, false>>("shf.r.clamp.b32"),
    operation<dp4a<u8, u8>>("dp4a.u32.u32"),
    operation<dp4a<std::int8_t, std::int8_t>>("dp4a.s32.s32"),
    operation<dp4a<u8, std::int8_t>>("dp4a.u32.s32"),
    operation<dp4a<std::int8_t, u8>>("dp4a.s32.u32"),
    operation<dp2a<std::int8_t, std::int8_t, 0>>("dp2a.lo.s32.s32"),
    operation<dp2a<std::int8_t, std::int8_t, 1>>("dp2a.hi.s32.s32"),
    operation<dp2a<u8, u8, 0>>("dp2a.lo.u32.u32"),
    operation<dp2a<u8, u8, 1>>("dp2a.hi.u32.u32"),
    operation<bmsk<true>>("bmsk.clamp.b32"),
    operation<bmsk<false>>("bmsk.wrap.b32"),
    operation<select<u16>>("selp.b16"),
    operation<select<u16>>("selp.u16"),
    operation<select<u16>>("selp.s16"),
    operation<select<u32>>("selp.b32"),
    operation<select<u32>>("selp.u32"),
    operation<select<u32>>("selp.s32"),
    operation<select<float>>("selp.f32"),
    operation<select<u64>>("selp.b64"),
    operation<select<u64>>("selp.u64"),
    operation<select<u64>>("selp.s64"),
    operation<select<double>>("selp.f64"),
    operation<slct<u32>>("slct.b32.s32"),
    operation<slct<u32>>("slct.u32.s32"),
    operation<slct<u32>>("slct.s32.s32"),
    operation<slct<float>>("slct.f32.s32"),
    operation<slct<u64>>("slct.b64.s32"),
    operation<slct<u64>>("slct.u64.s32"),
    operation<slct<u64>>("slct.s64.s32"),
    operation<slct_f<float>>("slct.f32.f32"),
    operation<slct_f<u32>>("slct.b32.f32"),
    operation<slct_f<u32>>("slct.u32.f32"),
    operation<slct_f<u32>>("slct.s32.f32"),
    operation<slct_f<u64>>("slct.b64.f32"),
    operation<slct_f<u64>>("slct.u64.f32"),
    operation<slct_f<u64>>("slct.s64.f32"),
    operation<slct_f<double>>("slct.f64.f32"),
    operation<slct_f<u16>>("slct.b16.f32"),
    operation<slct_f<u16>>("slct.u16.f32"),
    operation<slct_f<u16>>("slct.s16.f32"),
    operation<slct<u16>>("slct.b16.s32"),
    operation<slct<u16>>("slct.u16.s32"),
    operation<slct<u16>>("slct.s16.s32"),
    operation<slct<double>>("slct.f64.s32"),
    operation<same<u16>>("mov.b16"),
    operation<same<u16>>("mov.u16"),
    operation<same<u16>>("mov.s16"),
    operation<same<u16>>("mov.f16"),
    operation<same<u16>>("mov.bf16"),
    operation<same<u32>>("mov.b32"),
    operation<same<u32>>("mov.u32"),
    operation<same<u32>>("mov.s32"),
    operation<same<float>>("mov.f32"),
    operation<same<u64>>("mov.b64"),
    operation<same<u64>>("mov.u64"),
    operation<same<u64>>("mov.s64"),
    operation<same<double>>("mov.f64"),
    operation<same<bool>>("mov.pred"),
    operation<p_and>("and.pred"),
    operation<p_or>("or.pred"),
    operation<p_xor>("xor.pred"),
    operation<p_not>("not.pred"),
    operation<is_space>("isspacep.global"),
};

struct Comparison {
  std::string_view name, type;
  Operation operation;
};
constexpr Comparison comparisons[] = {
    {"eq", "u16", operation<eq<u16>>("")}, {"eq", "s16", operation<eq<s16>>("")}, {"eq", "u32", operation<eq<u32>>("")},
    {"eq", "s32", operation<eq<s32>>("")}, {"eq", "u64", operation<eq<u64>>("")}, {"eq", "s64", operation<eq<s64>>("")},
    {"ne", "u16", operation<ne<u16>>("")}, {"ne", "s16", operation<ne<s16>>("")}, {"ne", "u32", operation<ne<u32>>("")},
    {"ne", "s32", operation<ne<s32>>("")}, {"ne", "u64", operation<ne<u64>>("")}, {"ne", "s64", operation<ne<s64>>("")},
    {"lt", "u16", operation<lt<u16>>("")}, {"lt", "s16", operation<lt<s16>>("")}, {"lt", "u32", operation<lt<u32>>("")},
    {"lt", "s32", operation<lt<s32>>("")}, {"lt", "u64", operation<lt<u64>>("")}, {"lt", "s64", operation<lt<s64>>("")},
    {"le", "u16", operation<le<u16>>("")}, {"le", "s16", operation<le<s16>>("")}, {"le", "u32", operation<le<u32>>("")},
    {"le", "s32", operation<le<s32>>("")}, {"le", "u64", operation<le<u64>>("")}, {"le", "s64", operation<le<s64>>("")},
    {"gt", "u16", operation<gt<u16>>("")}, {"gt", "s16", operation<gt<s16>>("")}, {"gt", "u32", operation<gt<u32>>("")},
    {"gt", "s32", operation<gt<s32>>("")}, {"gt", "u64", operation<gt<u64>>("")}, {"gt", "s64", operation<gt<s64>>("")},
    {"ge", "u16", operation<ge<u16>>("")}, {"ge", "s16", operation<ge<s16>>("")}, {"ge", "u32", operation<ge<u32>>("")},
    {"ge", "s32", operation<ge<s32>>("")}, {"ge", "u64", operation<ge<u64>>("")}, {"ge", "s64", operation<ge<s64>>("")},
};

const Operation* comparison(std::string_view name, std::string_view type) {
  constexpr std::array<std::string_view, 2> unsigned_names[] = {{"lo", "lt"}, {"ls", "le"}, {"hi", "gt"}, {"hs", "ge"}};
  for (const auto& [from, to] : unsigned_names)
    if (name == from) name = to;
  constexpr std::array<std::string_view, 2> bit_types[] = {{"b16", "u16"}, {"b32", "u32"}, {"b64", "u64"}};
  for (const auto& [from, to] : bit_types)
    if (type == from) type = to;
  for (const Comparison& c : comparisons)
    if (c.name == name && c.type == type) return &c.operation;
  return nullptr;
}

}  // namespace

const Operation* find_integer(std::string_view opcode) {
  if (opcode.starts_with("setp.")) {
    const std::size_t dot = opcode.find('.', 5);
    return dot == std::string_view::npos ? nullptr : comparison(opcode.substr(5, dot - 5), opcode.substr(dot + 1));
  }
  return find_in(table, opcode);
}

}  // namespace dodona::ptx
