// Rows to codes of eight bits in vector code: largest magnitudes, and codes given a factor. Included by *.simd.cpp only.
#pragma once

#include "ops/base/row_lanes.h"

namespace dodona::DODONA_TIER {

/// The largest magnitude of n elements. NaN elements are passed over: the maximum keeps its second operand then.
template <class Lanes>
DODONA_INLINE float largest_number(const void* input, std::int64_t n) {
  f32x16 largest[4];
#pragma GCC unroll 4
  for (f32x16& value : largest) value = f32x16::zero();
  std::int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const Two x = Lanes::load_two(at<Lanes>(input, i)), y = Lanes::load_two(at<Lanes>(input, i + 32));
    largest[0] = max(abs(x.a), largest[0]);
    largest[1] = max(abs(x.b), largest[1]);
    largest[2] = max(abs(y.a), largest[2]);
    largest[3] = max(abs(y.b), largest[3]);
  }
  for (; i < n; i += 16) largest[0] = max(abs(Lanes::load_partial(at<Lanes>(input, i), n - i)), largest[0]);
  return reduce_max(max(max(largest[0], largest[1]), max(largest[2], largest[3])));
}

template <class Lanes>
DODONA_INLINE float largest_magnitude(const void* input, std::int64_t n) {
  return largest_number<Lanes>(input, n);
}
/// Of bf16, magnitudes are compared as integers, two to a lane: a NaN is larger than all others. Rows that have none are the rule.
template <>
DODONA_INLINE float largest_magnitude<Bf16Lanes>(const void* input, std::int64_t n) {
  const i32x16 magnitude = i32x16::splat(0x7FFF7FFF);
  i32x16 largest[2] = {i32x16::zero(), i32x16::zero()};
  std::int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const auto* const pairs = static_cast<const std::int32_t*>(at<Bf16Lanes>(input, i));
    largest[0] = max_16(i32x16::load(pairs) & magnitude, largest[0]);
    largest[1] = max_16(i32x16::load(pairs + 16) & magnitude, largest[1]);
  }
  const i32x16 pairs = max_16(largest[0], largest[1]);
  f32x16 rest = max(as_f32(shl<16>(pairs)), as_f32(pairs & i32x16::splat(-0x10000)));
  if (any(shl<16>(pairs) > i32x16::splat(0x7F800000)) || any(pairs > i32x16::splat(0x7F80FFFF))) return largest_number<Bf16Lanes>(input, n);
  for (; i < n; i += 16) rest = max(abs(load_bf16_partial(at<Bf16Lanes>(input, i), n - i)), rest);
  return reduce_max(rest);
}

/// What kernels make of NaN follows from the order in which they clamp: fmaxf(fminf(v, 448), -448) turns it into +448, the other order
/// into -448.
///
/// The codes of to_e4m3_codes with fewer operations: with e the exponent of |v|, at least -6, adding 2^(20 + e) rounds |v| to a multiple
/// of 2^(e-3), and leaves n = |v| / 2^(e-3) in the low bits. The code is n + 8 (e + 6), whose second part, which is even, the anchor has
/// in its low bits from the start.
template <std::int32_t nan_code>
struct E4m3Codes {
  static DODONA_INLINE i32x16 of(f32x16 v) {
    constexpr std::int32_t least = (127 - 6) << 23;
    const f32x16 magnitude = min(abs(v), f32x16::splat(448.0f));
    const i32x16 exponent = max(as_i32(magnitude) & i32x16::splat(0x7F800000), i32x16::splat(least));
    const i32x16 anchor = exponent + shr<20>(exponent) + i32x16::splat((20 << 23) - (least >> 20));
    const i32x16 code = as_i32(magnitude + as_f32(anchor)) & i32x16::splat(0x7F), sign = shr<24>(as_i32(v)) & i32x16::splat(0x80);
    return select(v == v, code | sign, i32x16::splat(nan_code));
  }
};
/// Clamped to -128 and 127, NaN to -128, and cut toward zero.
struct CutI8Codes {
  static DODONA_INLINE i32x16 of(f32x16 v) {
    const f32x16 clamped = min(max(v, f32x16::splat(-128.0f)), f32x16::splat(127.0f));
    return to_i32_trunc(clamped) & i32x16::splat(0xFF);
  }
};

/// Half away from zero, clamped; NaN to 0.
struct HalfAwayI8Codes {
  static DODONA_INLINE i32x16 of(f32x16 v) {
    const f32x16 magnitude = abs(v), below = floor(magnitude);
    const f32x16 nearest = below + select(magnitude - below < f32x16::splat(0.5f), f32x16::zero(), f32x16::splat(1.0f));
    const f32x16 clamped = min(max(copysign(nearest, v), f32x16::splat(-128.0f)), f32x16::splat(127.0f));
    return to_i32_trunc(select(v == v, clamped, f32x16::zero())) & i32x16::splat(0xFF);
  }
};

/// Thirty-two codes. What the lanes hold is the element type's business, see Lanes::load_two.
template <class Codes>
DODONA_INLINE void store_codes(Bf16Lanes, Two v, std::uint8_t* codes) {
  lanes::narrow_to_16((Codes::of(v.a) | shl<8>(Codes::of(v.b))).v).store(codes);
}
template <class Codes, class Lanes>
DODONA_INLINE void store_codes(InOrder<Lanes>, Two v, std::uint8_t* codes) {
  lanes::narrow_to_8(Codes::of(v.a).v).store(codes);
  lanes::narrow_to_8(Codes::of(v.b).v).store(codes + 16);
}

/// Codes of x * scaling.
template <class Codes, class Lanes>
DODONA_INLINE void quantize(const void* input, std::int64_t n, float scaling, std::uint8_t* codes) {
  const f32x16 factor = f32x16::splat(scaling);
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const Two x = Lanes::load_two(at<Lanes>(input, i));
    store_codes<Codes>(Lanes{}, {x.a * factor, x.b * factor}, codes + i);
  }
  for (; i < n; i += 16) {
    const f32x16 x = Lanes::load_partial(at<Lanes>(input, i), n - i);
    store_low_8_partial(Codes::of(x * factor), codes + i, n - i);
  }
}

}  // namespace dodona::DODONA_TIER
