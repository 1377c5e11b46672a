#include "ops/rows/log_softmax_row.h"

#include "ops/base/row_lanes.h"
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

template <class Lanes>
void log_softmax_row(const ops::LogSoftmaxRow& row) {
  const f32x16 lowest = f32x16::splat(-__builtin_inff());
  f32x16 largest = lowest;
  // The second one stays where the first is NaN.
  sixteens<Lanes>(row, [&](f32x16 x, std::int64_t, std::int64_t n) { largest = max(first_or(x, n, lowest), largest); });
  const f32x16 most = f32x16::splat(reduce_max(largest));
  f32x16 sums = f32x16::zero();
  sixteens<Lanes>(row, [&](f32x16 x, std::int64_t, std::int64_t n) { sums = sums + first_or(exp(x - most), n, f32x16::zero()); });
  const f32x16 log_sum = log(f32x16::splat(reduce_add(sums)));
  sixteens<Lanes>(row, [&](f32x16 x, std::int64_t i, std::int64_t n) {
    const f32x16 result = (x - most) - log_sum;
    n == 16 ? Lanes::store(result, at<Lanes>(row.output, i)) : Lanes::store_partial(result, at<Lanes>(row.output, i), n);
  });
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
