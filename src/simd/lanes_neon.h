// Sixteen lanes in four AArch64 registers. See f32x16.h for what each operation promises.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <xsimd/xsimd.hpp>

#include "simd/inline.h"
#include "simd/lanes_twin.h"

namespace dodona::DODONA_TIER::lanes {

using f32_batch = xsimd::batch<float, xsimd::neon64>;
using i32_batch = xsimd::batch<std::int32_t, xsimd::neon64>;

struct f32x4 {
  static constexpr int size = 4;
  f32_batch v;

  static DODONA_INLINE f32x4 load(const float* p) { return {f32_batch::load_unaligned(p)}; }
  static DODONA_INLINE f32x4 load_first(const float* p, int n) {
    float buffer[4] = {};
    __builtin_memcpy(buffer, p, sizeof(float) * static_cast<std::size_t>(n));
    return load(buffer);
  }
  static DODONA_INLINE f32x4 splat(float x) { return {f32_batch(x)}; }
  static DODONA_INLINE f32x4 zero() { return {vdupq_n_f32(0.0f)}; }
  DODONA_INLINE void store(float* p) const { v.store_unaligned(p); }
  DODONA_INLINE void store_first(float* p, int n) const {
    float buffer[4];
    store(buffer);
    __builtin_memcpy(p, buffer, sizeof(float) * static_cast<std::size_t>(n));
  }
};

struct i32x4 {
  static constexpr int size = 4;
  i32_batch v;

  static DODONA_INLINE i32x4 load(const std::int32_t* p) { return {vld1q_s32(p)}; }
  static DODONA_INLINE i32x4 load_first(const std::int32_t* p, int n) {
    std::int32_t buffer[4] = {};
    __builtin_memcpy(buffer, p, sizeof(std::int32_t) * static_cast<std::size_t>(n));
    return load(buffer);
  }
  static DODONA_INLINE i32x4 splat(std::int32_t x) { return {vdupq_n_s32(x)}; }
  static DODONA_INLINE i32x4 zero() { return {vdupq_n_s32(0)}; }
  DODONA_INLINE void store(std::int32_t* p) const { vst1q_s32(p, v); }
  DODONA_INLINE void store_first(std::int32_t* p, int n) const {
    std::int32_t buffer[4];
    store(buffer);
    __builtin_memcpy(p, buffer, sizeof(std::int32_t) * static_cast<std::size_t>(n));
  }
};

/// All ones in the lanes that are set.
struct mask4 {
  static constexpr int size = 4;
  uint32x4_t v;

  static DODONA_INLINE mask4 from_bits(std::uint32_t bits) {
    const uint32x4_t bit = {1, 2, 4, 8};
    return {vtstq_u32(vdupq_n_u32(bits), bit)};
  }
  DODONA_INLINE std::uint32_t to_bits() const {
    const uint32x4_t bit = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(v, bit));
  }
};

using f32 = twin<twin<f32x4>>;
using i32 = twin<twin<i32x4>>;
using mask = twin<twin<mask4>>;

DODONA_INLINE f32x4 add(f32x4 a, f32x4 b) {
  return {a.v + b.v};
}
DODONA_INLINE f32x4 sub(f32x4 a, f32x4 b) {
  return {a.v - b.v};
}
DODONA_INLINE f32x4 mul(f32x4 a, f32x4 b) {
  return {a.v * b.v};
}
DODONA_INLINE f32x4 div(f32x4 a, f32x4 b) {
  return {vdivq_f32(a.v, b.v)};
}
DODONA_INLINE f32x4 fma(f32x4 a, f32x4 b, f32x4 c) {
  return {vfmaq_f32(c.v, a.v, b.v)};
}
DODONA_INLINE f32x4 fnma(f32x4 a, f32x4 b, f32x4 c) {
  return {vfmsq_f32(c.v, a.v, b.v)};
}
DODONA_INLINE f32x4 fms(f32x4 a, f32x4 b, f32x4 c) {
  return {vfmaq_f32(vnegq_f32(c.v), a.v, b.v)};
}
// Not vminq: it returns NaN whichever side it is on.
DODONA_INLINE f32x4 min(f32x4 a, f32x4 b) {
  return {vbslq_f32(vcltq_f32(a.v, b.v), a.v, b.v)};
}
DODONA_INLINE f32x4 max(f32x4 a, f32x4 b) {
  return {vbslq_f32(vcgtq_f32(a.v, b.v), a.v, b.v)};
}
DODONA_INLINE f32x4 sqrt(f32x4 a) {
  return {vsqrtq_f32(a.v)};
}
DODONA_INLINE f32x4 floor(f32x4 a) {
  return {vrndmq_f32(a.v)};
}
DODONA_INLINE f32x4 round_even(f32x4 a) {
  return {vrndnq_f32(a.v)};
}

DODONA_INLINE mask4 lt(f32x4 a, f32x4 b) {
  return {vcltq_f32(a.v, b.v)};
}
DODONA_INLINE mask4 le(f32x4 a, f32x4 b) {
  return {vcleq_f32(a.v, b.v)};
}
DODONA_INLINE mask4 eq(f32x4 a, f32x4 b) {
  return {vceqq_f32(a.v, b.v)};
}
DODONA_INLINE f32x4 select(mask4 m, f32x4 a, f32x4 b) {
  return {vbslq_f32(m.v, a.v, b.v)};
}

DODONA_INLINE i32x4 add(i32x4 a, i32x4 b) {
  return {vaddq_s32(a.v, b.v)};
}
DODONA_INLINE i32x4 sub(i32x4 a, i32x4 b) {
  return {vsubq_s32(a.v, b.v)};
}
DODONA_INLINE i32x4 mul(i32x4 a, i32x4 b) {
  return {vmulq_s32(a.v, b.v)};
}
DODONA_INLINE i32x4 min(i32x4 a, i32x4 b) {
  return {vminq_s32(a.v, b.v)};
}
DODONA_INLINE i32x4 max(i32x4 a, i32x4 b) {
  return {vmaxq_s32(a.v, b.v)};
}
DODONA_INLINE i32x4 bit_and(i32x4 a, i32x4 b) {
  return {vandq_s32(a.v, b.v)};
}
DODONA_INLINE i32x4 bit_or(i32x4 a, i32x4 b) {
  return {vorrq_s32(a.v, b.v)};
}
DODONA_INLINE i32x4 bit_xor(i32x4 a, i32x4 b) {
  return {veorq_s32(a.v, b.v)};
}
template <int k>
DODONA_INLINE i32x4 shl(i32x4 a) {
  return {vshlq_s32(a.v, vdupq_n_s32(k))};
}
template <int k>
DODONA_INLINE i32x4 shr(i32x4 a) {
  return {vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a.v), vdupq_n_s32(-k)))};
}
template <int k>
DODONA_INLINE i32x4 sra(i32x4 a) {
  return {vshlq_s32(a.v, vdupq_n_s32(-k))};
}
DODONA_INLINE i32x4 add_8(i32x4 a, i32x4 b) {
  return {vreinterpretq_s32_s8(vaddq_s8(vreinterpretq_s8_s32(a.v), vreinterpretq_s8_s32(b.v)))};
}
DODONA_INLINE i32x4 mul_16(i32x4 a, i32x4 b) {
  return {vreinterpretq_s32_s16(vmulq_s16(vreinterpretq_s16_s32(a.v), vreinterpretq_s16_s32(b.v)))};
}
DODONA_INLINE i32x4 max_16(i32x4 a, i32x4 b) {
  return {vreinterpretq_s32_s16(vmaxq_s16(vreinterpretq_s16_s32(a.v), vreinterpretq_s16_s32(b.v)))};
}
template <int k>
DODONA_INLINE i32x4 sra_16(i32x4 a) {
  return {vreinterpretq_s32_s16(vshlq_s16(vreinterpretq_s16_s32(a.v), vdupq_n_s16(-k)))};
}
DODONA_INLINE mask4 lt(i32x4 a, i32x4 b) {
  return {vcltq_s32(a.v, b.v)};
}
DODONA_INLINE mask4 eq(i32x4 a, i32x4 b) {
  return {vceqq_s32(a.v, b.v)};
}
DODONA_INLINE i32x4 select(mask4 m, i32x4 a, i32x4 b) {
  return {vbslq_s32(m.v, a.v, b.v)};
}

DODONA_INLINE i32x4 as_i32(f32x4 a) {
  return {vreinterpretq_s32_f32(a.v)};
}
DODONA_INLINE f32x4 as_f32(i32x4 a) {
  return {vreinterpretq_f32_s32(a.v)};
}
DODONA_INLINE f32x4 to_f32(i32x4 a) {
  return {vcvtq_f32_s32(a.v)};
}
/// The conversion saturates and turns NaN into 0 where x86 gives the smallest integer.
DODONA_INLINE int32x4_t or_smallest(float32x4_t x, int32x4_t converted) {
  const uint32x4_t in_range = vcaltq_f32(x, vdupq_n_f32(0x1p31f));
  return vbslq_s32(in_range, converted, vdupq_n_s32(INT32_MIN));
}
DODONA_INLINE i32x4 to_i32(f32x4 a) {
  return {or_smallest(a.v, vcvtnq_s32_f32(a.v))};
}
DODONA_INLINE i32x4 to_i32_trunc(f32x4 a) {
  return {or_smallest(a.v, vcvtq_s32_f32(a.v))};
}

DODONA_INLINE mask4 bit_and(mask4 a, mask4 b) {
  return {vandq_u32(a.v, b.v)};
}
DODONA_INLINE mask4 bit_or(mask4 a, mask4 b) {
  return {vorrq_u32(a.v, b.v)};
}
DODONA_INLINE mask4 bit_xor(mask4 a, mask4 b) {
  return {veorq_u32(a.v, b.v)};
}
DODONA_INLINE mask4 bit_not(mask4 a) {
  return {vmvnq_u32(a.v)};
}

// Reductions of four lanes: lane i with lane i + 2, then + 1.
DODONA_INLINE float reduce_add(f32x4 a) {
  const float32x2_t x2 = vadd_f32(vget_low_f32(a.v), vget_high_f32(a.v));
  return vget_lane_f32(x2, 0) + vget_lane_f32(x2, 1);
}
DODONA_INLINE float reduce_min(f32x4 a) {
  const float32x4_t v = a.v;
  const float x = v[0] < v[2] ? v[0] : v[2], y = v[1] < v[3] ? v[1] : v[3];
  return x < y ? x : y;
}
DODONA_INLINE float reduce_max(f32x4 a) {
  const float32x4_t v = a.v;
  const float x = v[0] > v[2] ? v[0] : v[2], y = v[1] > v[3] ? v[1] : v[3];
  return x > y ? x : y;
}

DODONA_INLINE void deinterleave(f32x4& a, f32x4& b) {
  const float32x4_t even = vuzp1q_f32(a.v, b.v), odd = vuzp2q_f32(a.v, b.v);
  a = {even};
  b = {odd};
}
DODONA_INLINE void interleave(f32x4& even, f32x4& odd) {
  const float32x4_t a = vzip1q_f32(even.v, odd.v), b = vzip2q_f32(even.v, odd.v);
  even = {a};
  odd = {b};
}

DODONA_INLINE void transpose(f32 (&r)[16]) {
  float in[16][16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i].store(in[i]);
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    f32x4 block[4][4];  // block[j] holds rows 4j..4j+3 of columns i..i+3, transposed
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const float32x4_t a = vld1q_f32(&in[4 * j][i]), b = vld1q_f32(&in[4 * j + 1][i]);
      const float32x4_t c = vld1q_f32(&in[4 * j + 2][i]), d = vld1q_f32(&in[4 * j + 3][i]);
      const float64x2_t ab_even = vreinterpretq_f64_f32(vtrn1q_f32(a, b)), ab_odd = vreinterpretq_f64_f32(vtrn2q_f32(a, b));
      const float64x2_t cd_even = vreinterpretq_f64_f32(vtrn1q_f32(c, d)), cd_odd = vreinterpretq_f64_f32(vtrn2q_f32(c, d));
      block[j][0] = {vreinterpretq_f32_f64(vzip1q_f64(ab_even, cd_even))};
      block[j][1] = {vreinterpretq_f32_f64(vzip1q_f64(ab_odd, cd_odd))};
      block[j][2] = {vreinterpretq_f32_f64(vzip2q_f64(ab_even, cd_even))};
      block[j][3] = {vreinterpretq_f32_f64(vzip2q_f64(ab_odd, cd_odd))};
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) r[i + c] = {{block[0][c], block[1][c]}, {block[2][c], block[3][c]}};
  }
}

/// Sixteen 8-bit codes.
struct codes8 {
  uint8x16_t v;

  static DODONA_INLINE codes8 load(const void* p) { return {vld1q_u8(static_cast<const std::uint8_t*>(p))}; }
  static DODONA_INLINE codes8 load_first(const void* p, int n) {
    std::uint8_t buffer[16] = {};
    __builtin_memcpy(buffer, p, static_cast<std::size_t>(n));
    return load(buffer);
  }
  DODONA_INLINE void store(void* p) const { vst1q_u8(static_cast<std::uint8_t*>(p), v); }
  DODONA_INLINE void store_first(void* p, int n) const {
    std::uint8_t buffer[16];
    store(buffer);
    __builtin_memcpy(p, buffer, static_cast<std::size_t>(n));
  }
};

/// Sixteen 16-bit codes. Memory may lie at an odd address, so it is read as bytes.
struct codes16 {
  uint16x8_t lo, hi;

  static DODONA_INLINE codes16 load(const void* p) {
    const std::uint8_t* bytes = static_cast<const std::uint8_t*>(p);
    return {vreinterpretq_u16_u8(vld1q_u8(bytes)), vreinterpretq_u16_u8(vld1q_u8(bytes + 16))};
  }
  static DODONA_INLINE codes16 load_first(const void* p, int n) {
    std::uint16_t buffer[16] = {};
    __builtin_memcpy(buffer, p, 2 * static_cast<std::size_t>(n));
    return load(buffer);
  }
  DODONA_INLINE void store(void* p) const {
    std::uint8_t* bytes = static_cast<std::uint8_t*>(p);
    vst1q_u8(bytes, vreinterpretq_u8_u16(lo));
    vst1q_u8(bytes + 16, vreinterpretq_u8_u16(hi));
  }
  DODONA_INLINE void store_first(void* p, int n) const {
    std::uint16_t buffer[16];
    store(buffer);
    __builtin_memcpy(p, buffer, 2 * static_cast<std::size_t>(n));
  }
};

DODONA_INLINE twin<i32x4> widen_unsigned(uint16x8_t a) {
  return {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(a)))}, {vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(a)))}};
}
DODONA_INLINE i32 widen_unsigned(codes16 a) {
  return {widen_unsigned(a.lo), widen_unsigned(a.hi)};
}
DODONA_INLINE i32 widen_unsigned(codes8 a) {
  return {widen_unsigned(vmovl_u8(vget_low_u8(a.v))), widen_unsigned(vmovl_u8(vget_high_u8(a.v)))};
}
DODONA_INLINE twin<i32x4> widen_signed(int16x8_t a) {
  return {{vmovl_s16(vget_low_s16(a))}, {vmovl_s16(vget_high_s16(a))}};
}
DODONA_INLINE i32 widen_signed(codes8 a) {
  const int8x16_t s = vreinterpretq_s8_u8(a.v);
  return {widen_signed(vmovl_s8(vget_low_s8(s))), widen_signed(vmovl_s8(vget_high_s8(s)))};
}
DODONA_INLINE uint16x8_t narrow_to_16(twin<i32x4> a) {
  return vcombine_u16(vmovn_u32(vreinterpretq_u32_s32(a.lo.v)), vmovn_u32(vreinterpretq_u32_s32(a.hi.v)));
}
/// Lanes hold 0..65535.
DODONA_INLINE codes16 narrow_to_16(i32 a) {
  return {narrow_to_16(a.lo), narrow_to_16(a.hi)};
}
/// Lanes hold 0..255.
DODONA_INLINE codes8 narrow_to_8(i32 a) {
  return {vcombine_u8(vmovn_u16(narrow_to_16(a.lo)), vmovn_u16(narrow_to_16(a.hi)))};
}
struct codes16_pair {
  codes16 low, high;
};
/// The low and the high halves of all lanes.
DODONA_INLINE codes16_pair split_to_16(i32 a) {
  const auto split = [](twin<i32x4> x) { return vuzpq_u16(vreinterpretq_u16_s32(x.lo.v), vreinterpretq_u16_s32(x.hi.v)); };
  const uint16x8x2_t lo = split(a.lo), hi = split(a.hi);
  return {{lo.val[0], hi.val[0]}, {lo.val[1], hi.val[1]}};
}
/// The low halves of all lanes, then the high ones.
DODONA_INLINE i32 regroup_16(i32 a) {
  const codes16_pair split = split_to_16(a);
  const auto words = [](uint16x8_t x) { return i32x4{vreinterpretq_s32_u16(x)}; };
  return {{words(split.low.lo), words(split.low.hi)}, {words(split.high.lo), words(split.high.hi)}};
}
/// The first sixteen of thirty-two codes, and the others.
DODONA_INLINE codes16_pair sixteens(i32 a) {
  const auto codes = [](i32x4 x) { return vreinterpretq_u16_s32(x.v); };
  return {{codes(a.lo.lo), codes(a.lo.hi)}, {codes(a.hi.lo), codes(a.hi.hi)}};
}
/// Lane `index` mod 16 of the table.
DODONA_INLINE f32 lookup_16(f32 table, i32 index) {
  float from[16], to[16];
  std::int32_t at[16];
  table.store(from);
  index.store(at);
  for (int i = 0; i < 16; ++i) to[i] = from[at[i] & 15];
  return f32::load(to);
}
/// Sixteen codes 0..15 in eight bytes, element 2j in the low nibble of byte j.
DODONA_INLINE std::uint64_t pack_nibbles(codes8 a) {
  const uint16x8_t words = vreinterpretq_u16_u8(a.v);
  return vget_lane_u64(vreinterpret_u64_u8(vmovn_u16(vorrq_u16(words, vshrq_n_u16(words, 4)))), 0);
}
DODONA_INLINE twin<f32x4> half_to_f32(uint16x8_t a) {
  const float16x8_t h = vreinterpretq_f16_u16(a);
  return {{vcvt_f32_f16(vget_low_f16(h))}, {vcvt_f32_f16(vget_high_f16(h))}};
}
DODONA_INLINE f32 half_to_f32(codes16 a) {
  return {half_to_f32(a.lo), half_to_f32(a.hi)};
}
DODONA_INLINE uint16x8_t f32_to_half(twin<f32x4> a) {
  return vreinterpretq_u16_f16(vcombine_f16(vcvt_f16_f32(a.lo.v), vcvt_f16_f32(a.hi.v)));
}
DODONA_INLINE codes16 f32_to_half(f32 a) {
  return {f32_to_half(a.lo), f32_to_half(a.hi)};
}
DODONA_INLINE uint16x8_t e4m3_to_half_finite(uint8x8_t a) {
  const int16x8_t bits = vshlq_n_s16(vmovl_s8(vreinterpret_s8_u8(a)), 7);
  return vandq_u16(vreinterpretq_u16_s16(bits), vdupq_n_u16(0xBFFF));
}
/// The half of the same sign, exponent field and mantissa, which is value / 256.
DODONA_INLINE codes16 e4m3_to_half_finite(codes8 a) {
  return {e4m3_to_half_finite(vget_low_u8(a.v)), e4m3_to_half_finite(vget_high_u8(a.v))};
}
DODONA_INLINE uint16x8_t mark_nan(uint16x8_t bits) {
  const uint16x8_t nan = vceqq_u16(vandq_u16(bits, vdupq_n_u16(0x3F80)), vdupq_n_u16(0x3F80));
  return vaddq_u16(bits, vandq_u16(nan, vdupq_n_u16(0x7E00 - 0x3F80)));
}
/// The same, and codes 0x7F and 0xFF become the NaN 0x7E00 with their sign.
DODONA_INLINE codes16 e4m3_to_half(codes8 a) {
  const codes16 bits = e4m3_to_half_finite(a);
  return {mark_nan(bits.lo), mark_nan(bits.hi)};
}
DODONA_INLINE codes16 e5m2_to_half(codes8 a) {
  return {vshll_n_u8(vget_low_u8(a.v), 8), vshll_n_u8(vget_high_u8(a.v), 8)};
}
DODONA_INLINE f32 e2m1_to_f32(std::uint64_t codes) {
  // Upper bytes of the halves 0, 0.5, 1, 1.5, 2, 3, 4, 6; their lower bytes are zero.
  const uint8x16_t table = {0x00, 0x38, 0x3C, 0x3E, 0x40, 0x42, 0x44, 0x46, 0x80, 0xB8, 0xBC, 0xBE, 0xC0, 0xC2, 0xC4, 0xC6};
  const uint8x8_t bytes = vcreate_u8(codes);
  const uint8x8_t even = vand_u8(bytes, vdup_n_u8(0xF)), odd = vshr_n_u8(bytes, 4);
  const uint8x16_t nibbles = vcombine_u8(vzip1_u8(even, odd), vzip2_u8(even, odd));
  return half_to_f32(e5m2_to_half(codes8{vqtbl1q_u8(table, nibbles)}));
}

DODONA_INLINE i32x4 dpbusd(i32x4 acc, i32x4 a, i32x4 b) {
  const uint8x16_t u = vreinterpretq_u8_s32(a.v);
  const int8x16_t s = vreinterpretq_s8_s32(b.v);
  const int16x8_t ul = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(u))), uh = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(u)));
  const int16x8_t sl = vmovl_s8(vget_low_s8(s)), sh = vmovl_s8(vget_high_s8(s));
  const int32x4_t p0 = vmull_s16(vget_low_s16(ul), vget_low_s16(sl)), p1 = vmull_high_s16(ul, sl);
  const int32x4_t p2 = vmull_s16(vget_low_s16(uh), vget_low_s16(sh)), p3 = vmull_high_s16(uh, sh);
  return {vaddq_s32(acc.v, vpaddq_s32(vpaddq_s32(p0, p1), vpaddq_s32(p2, p3)))};
}
DODONA_INLINE i32x4 dpbusd_small(i32x4 acc, i32x4 a, i32x4 b) {
  return dpbusd(acc, a, b);
}
DODONA_INLINE i32x4 dot16_small(i32x4 acc, const i32x4 (&a)[4], const i32x4 (&b)[4]) {
  return dpbusd(dpbusd(dpbusd(dpbusd(acc, a[0], b[0]), a[1], b[1]), a[2], b[2]), a[3], b[3]);
}
DODONA_INLINE i32x4 lookup_bytes(i32x4 table, i32x4 indices) {
  return {vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(table.v), vreinterpretq_u8_s32(indices.v)))};
}

}  // namespace dodona::DODONA_TIER::lanes
