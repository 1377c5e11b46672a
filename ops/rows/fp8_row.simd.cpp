#include "ops/rows/fp8_row.h"

#include "ops/base/row_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::Fp8Row;

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

/// The kernel clamps with fmaxf(fminf(v, 448), -448), which turns NaN into +448.
DODONA_INLINE i32x16 clamped_codes(f32x16 v) {
  return to_small_float_codes<3, -6, 7>(v, 448.0f, 0x7E);
}

/// Thirty-two codes. What the lanes hold is the element type's business, see Lanes::load_two.
DODONA_INLINE void store_codes(Bf16Lanes, Two v, std::uint8_t* codes) {
  lanes::narrow_to_16((clamped_codes(v.a) | shl<8>(clamped_codes(v.b))).v).store(codes);
}
template <class Lanes>
DODONA_INLINE void store_codes(InOrder<Lanes>, Two v, std::uint8_t* codes) {
  lanes::narrow_to_8(clamped_codes(v.a).v).store(codes);
  lanes::narrow_to_8(clamped_codes(v.b).v).store(codes + 16);
}

template <class Lanes>
DODONA_INLINE void quantize(const void* input, std::int64_t n, float scaling, std::uint8_t* codes) {
  const f32x16 factor = f32x16::splat(scaling);
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const Two x = Lanes::load_two(at<Lanes>(input, i));
    store_codes(Lanes{}, {x.a * factor, x.b * factor}, codes + i);
  }
  for (; i < n; i += 16) {
    const f32x16 x = Lanes::load_partial(at<Lanes>(input, i), n - i);
    store_low_8_partial(clamped_codes(x * factor), codes + i, n - i);
  }
}

template <class Lanes>
void quantize_row(const Fp8Row row) {
  const float largest = largest_magnitude<Lanes>(row.input, row.n);
  const float scale = row.true_division ? largest / 448.0f : largest * (1.0f / 448.0f);
  *row.scale = scale;
  quantize<Lanes>(row.input, row.n, scale != 0 ? 1.0f / scale : 0.0f, row.codes);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void Fp8RowKernel::run(const Fp8Row& row) {
  using namespace DODONA_TIER;
  with_lanes(row.type, [&](auto lanes_of) { quantize_row<decltype(lanes_of)>(row); });
}
template void Fp8RowKernel::run<tier::DODONA_TIER>(const Fp8Row&);

template <class Tier>
void LargestMagnitudeKernel::run(const LargestMagnitude& row) {
  using namespace DODONA_TIER;
  with_lanes(row.type, [&](auto lanes_of) { *row.result = largest_magnitude<decltype(lanes_of)>(row.input, row.n); });
}
template void LargestMagnitudeKernel::run<tier::DODONA_TIER>(const LargestMagnitude&);

template <class Tier>
void Fp8CodesKernel::run(const Fp8Codes& row) {
  using namespace DODONA_TIER;
  with_lanes(row.type, [&](auto lanes_of) { quantize<decltype(lanes_of)>(row.input, row.n, row.factor, row.codes); });
}
template void Fp8CodesKernel::run<tier::DODONA_TIER>(const Fp8Codes&);

}  // namespace dodona::ops
