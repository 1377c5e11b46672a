#include "ops/rows/norms/rms_row.h"

#include "ops/base/row_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::RmsRow;

/// How x comes about, and what is rounded on the way. `plain` rows round and add nothing inside, which keeps the flags out of their loops.
template <class LanesOf, bool has_addend_, bool plain_>
struct Recipe {
  using Lanes = LanesOf;
  static constexpr bool has_addend = has_addend_, plain = plain_;
};

template <class R>
DODONA_INLINE f32x16 sum_of(const RmsRow& row, f32x16 x, f32x16 addend) {
  if (R::has_addend) x = x + addend;
  return !R::plain && row.sum_rounded ? R::Lanes::round(x) : x;
}

/// Thirty-two elements of x, in the type's order.
template <class R>
DODONA_INLINE Two two_values(const RmsRow& row, std::int64_t i) {
  using Lanes = typename R::Lanes;
  const Two x = Lanes::load_two(at<Lanes>(row.input, i));
  const Two addend = R::has_addend ? Lanes::load_two(at<Lanes>(row.addend, i)) : x;
  return {sum_of<R>(row, x.a, addend.a), sum_of<R>(row, x.b, addend.b)};
}
/// The last elements of a row; lanes beyond it are zero.
template <class R>
DODONA_INLINE f32x16 last_values(const RmsRow& row, std::int64_t i) {
  using Lanes = typename R::Lanes;
  const f32x16 x = Lanes::load_partial(at<Lanes>(row.input, i), row.n - i);
  return sum_of<R>(row, x, R::has_addend ? Lanes::load_partial(at<Lanes>(row.addend, i), row.n - i) : x);
}

template <class R>
DODONA_INLINE float sum_of_squares(const RmsRow& row) {
  f32x16 chains[8];
#pragma GCC unroll 8
  for (f32x16& chain : chains) chain = f32x16::zero();
  std::int64_t i = 0;
  for (; i + 128 <= row.n; i += 128) {
#pragma GCC unroll 4
    for (int k = 0; k < 8; k += 2) {
      const Two x = two_values<R>(row, i + 16 * k);
      chains[k] = fma(x.a, x.a, chains[k]);
      chains[k + 1] = fma(x.b, x.b, chains[k + 1]);
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < 8; ++k) {  // up to eight more, none of which may be there
    const f32x16 x = last_values<R>(row, i + 16 * k);
    chains[k] = fma(x, x, chains[k]);
  }
#pragma GCC unroll 3
  for (int step = 4; step > 0; step /= 2)
#pragma GCC unroll 4
    for (int k = 0; k < step; ++k) chains[k] = chains[k] + chains[k + step];
  return reduce_add(chains[0]);
}

template <class R>
DODONA_INLINE f32x16 normalised(const RmsRow& row, f32x16 x, f32x16 factor, f32x16 weight) {
  x = x * factor;
  if (!R::plain && row.weight_rounded) x = R::Lanes::round(x);
  if (!R::plain && row.weight_bias != 0) weight = weight + f32x16::splat(row.weight_bias);
  return x * weight;
}

template <class R>
void normalise_row(const RmsRow row) {
  using Lanes = typename R::Lanes;
  const float argument = sum_of_squares<R>(row) / static_cast<float>(row.n) + row.eps;
  const f32x16 factor = f32x16::splat(1.0f / __builtin_sqrtf(argument));
  const bool stream = row.writing != ops::Writing::cached && can_stream(row.output);
  std::int64_t i = 0;
  for (; i + 32 <= row.n; i += 32) {
    fetch_far<Lanes>(row.next_input, i);
    if (R::has_addend) fetch_far<Lanes>(row.next_addend, i);
    const Two x = two_values<R>(row, i), weight = Lanes::load_two(at<Lanes>(row.weight, i));
    if (R::has_addend) Lanes::store_two(x, at<Lanes>(row.sum_output, i));
    const Two y{normalised<R>(row, x.a, factor, weight.a), normalised<R>(row, x.b, factor, weight.b)};
    if (stream) {
      Lanes::stream_two(y, at<Lanes>(row.output, i));
    } else {
      Lanes::store_two(y, at<Lanes>(row.output, i));
    }
  }
  for (; i < row.n; i += 16) {
    const std::int64_t left = row.n - i;
    const f32x16 x = last_values<R>(row, i), weight = Lanes::load_partial(at<Lanes>(row.weight, i), left);
    if (R::has_addend) Lanes::store_partial(x, at<Lanes>(row.sum_output, i), left);
    Lanes::store_partial(normalised<R>(row, x, factor, weight), at<Lanes>(row.output, i), left);
  }
  if (row.writing == ops::Writing::streamed_last) stream_end();
}

template <class Lanes>
DODONA_INLINE void normalise_row_of(const RmsRow& row) {
  const bool plain = !row.sum_rounded && !row.weight_rounded && row.weight_bias == 0;
  if (row.addend != nullptr) return plain ? normalise_row<Recipe<Lanes, true, true>>(row) : normalise_row<Recipe<Lanes, true, false>>(row);
  return plain ? normalise_row<Recipe<Lanes, false, true>>(row) : normalise_row<Recipe<Lanes, false, false>>(row);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void RmsRowKernel::run(const RmsRow& row) {
  using namespace DODONA_TIER;
  with_lanes(row.type, [&](auto lanes) { normalise_row_of<decltype(lanes)>(row); });
}
template void RmsRowKernel::run<tier::DODONA_TIER>(const RmsRow&);

}  // namespace dodona::ops
