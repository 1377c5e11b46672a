#include "ops/rows/norms/log_softmax_row.h"

#include "ops/rows/number_lanes.h"
#include "simd/math.h"

namespace dodona::DODONA_TIER {
namespace {

/// Calls body(lanes, element, how many) for sixteen elements at a time, the last ones of the row by their number.
template <class Lanes, class Body>
DODONA_INLINE void sixteens(const ops::LogSoftmaxRow& row, const Body& body) {
  std::int64_t i = 0;
  for (; i + 16 <= row.n; i += 16) body(Lanes::load(at<Lanes>(row.input, i)), i, std::int64_t{16});
  if (i < row.n) body(Lanes::load_partial(at<Lanes>(row.input, i), row.n - i), i, row.n - i);
}
DODONA_INLINE f32x16 first_or(f32x16 x, std::int64_t n, f32x16 rest) {
  return n == 16 ? x : select(mask16::first(n), x, rest);
}

/// The second operand of max stays where the first is NaN.
template <class Lanes>
DODONA_INLINE float largest_of(const ops::LogSoftmaxRow& row) {
  const f32x16 lowest = f32x16::splat(-__builtin_inff());
  f32x16 largest[4] = {lowest, lowest, lowest, lowest};
  std::int64_t i = 0;
  for (; i + 64 <= row.n; i += 64) {
    const Two x = Lanes::load_two(at<Lanes>(row.input, i)), y = Lanes::load_two(at<Lanes>(row.input, i + 32));
    largest[0] = max(x.a, largest[0]);
    largest[1] = max(x.b, largest[1]);
    largest[2] = max(y.a, largest[2]);
    largest[3] = max(y.b, largest[3]);
  }
  for (; i < row.n; i += 16)
    largest[0] = max(first_or(Lanes::load_partial(at<Lanes>(row.input, i), row.n - i), row.n - i, lowest), largest[0]);
  return reduce_max(max(max(largest[0], largest[1]), max(largest[2], largest[3])));
}

/// Thirty-two results. Where the logarithm of the sum is a number there is no NaN among them.
DODONA_INLINE void put_two(Bf16Lanes, Two y, bool numbers, bool streamed, void* p) {
  if (!numbers) return Bf16Lanes::store_two(y, p);
  const i32x16 pairs = pairs_of_numbers(y);
  streamed ? stream(pairs, p) : pairs.store(static_cast<std::int32_t*>(p));
}
template <class Lanes>
DODONA_INLINE void put_two(InOrder<Lanes>, Two y, bool, bool streamed, void* p) {
  streamed ? Lanes::stream_two(y, p) : Lanes::store_two(y, p);
}

template <class Lanes>
void log_softmax_row(const ops::LogSoftmaxRow& row) {
  const f32x16 most = f32x16::splat(largest_of<Lanes>(row));
  f32x16 sums = f32x16::zero();
  // This pass computes while memory would rest.
  sixteens<Lanes>(row, [&](f32x16 x, std::int64_t i, std::int64_t n) {
    __builtin_prefetch(at<Lanes>(row.next, i), 0, 2);
    sums = sums + first_or(exp(x - most), n, f32x16::zero());
  });
  const float sum = reduce_add(sums);
  const f32x16 log_sum = log(f32x16::splat(sum));
  const bool numbers = sum < __builtin_inff(), streamed = row.streamed && can_stream(row.output);
  const auto result = [&](f32x16 x) __attribute__((always_inline)) {
    return (x - most) - log_sum;
  };
  std::int64_t i = 0;
  for (; i + 32 <= row.n; i += 32) {
    const Two x = Lanes::load_two(at<Lanes>(row.input, i));
    put_two(Lanes{}, {result(x.a), result(x.b)}, numbers, streamed, at<Lanes>(row.output, i));
  }
  for (; i < row.n; i += 16)
    Lanes::store_partial(result(Lanes::load_partial(at<Lanes>(row.input, i), row.n - i)), at<Lanes>(row.output, i), row.n - i);
  if (streamed) stream_end();
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void LogSoftmaxRowKernel::run(const LogSoftmaxRow& row) {
  using namespace DODONA_TIER;
  with_lanes(row.type, [&](auto lanes_of) { log_softmax_row<decltype(lanes_of)>(row); });
}
template void LogSoftmaxRowKernel::run<tier::DODONA_TIER>(const LogSoftmaxRow&);

}  // namespace dodona::ops
