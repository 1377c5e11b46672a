// Rows to codes of eight bits in vector code: largest magnitudes, and codes given a factor. Included by *.simd.cpp only.
#pragma once

#include "ops/base/row_lanes.h"

namespace dodona::DODONA_TIER {

/// NaN elements are passed over: the maximum keeps its second operand then.
template <class Lanes>
DODONA_INLINE float largest_magnitude(const void* input, std::int64_t n) {
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

/// What kernels make of NaN follows from the order in which they clamp: fmaxf(fminf(v, 448), -448) turns it into +448, the other order
/// into -448.
template <std::int32_t nan_code>
struct E4m3Codes {
  static DODONA_INLINE i32x16 of(f32x16 v) { return to_small_float_codes<3, -6, 7>(v, 448.0f, nan_code); }
};
/// Clamped to -128 and 127, NaN to -128, and cut toward zero.
struct CutI8Codes {
  static DODONA_INLINE i32x16 of(f32x16 v) {
    const f32x16 clamped = min(max(v, f32x16::splat(-128.0f)), f32x16::splat(127.0f));
    return to_i32_trunc(clamped) & i32x16::splat(0xFF);
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
