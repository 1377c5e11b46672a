#include "ops/rows/log_softmax_row.h"

#include "ops/base/row_lanes.h"
#include "simd/math.h"

namespace dodona::DODONA_TIER {
namespace {

template <class Lanes>
void log_softmax_row(const ops::LogSoftmaxRow& row) {
  const f32x16 lowest = f32x16::splat(-__builtin_inff());
  f32x16 largest = lowest;
  for (std::int64_t i = 0; i < row.n; i += 16) {
    const f32x16 x = Lanes::load_partial(at<Lanes>(row.input, i), row.n - i);
    largest = max(select(mask16::first(row.n - i), x, lowest), largest);  // the second one stays where the first is NaN
  }
  const f32x16 most = f32x16::splat(reduce_max(largest));
  f32x16 sums = f32x16::zero();
  for (std::int64_t i = 0; i < row.n; i += 16) {
    const f32x16 x = Lanes::load_partial(at<Lanes>(row.input, i), row.n - i);
    sums = sums + select(mask16::first(row.n - i), exp(x - most), f32x16::zero());
  }
  const f32x16 log_sum = log(f32x16::splat(reduce_add(sums)));
  for (std::int64_t i = 0; i < row.n; i += 16) {
    const f32x16 x = Lanes::load_partial(at<Lanes>(row.input, i), row.n - i);
    Lanes::store_partial((x - most) - log_sum, at<Lanes>(row.output, i), row.n - i);
  }
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
