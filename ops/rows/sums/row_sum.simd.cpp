#include "ops/rows/sums/row_sum.h"

#include "ops/base/row_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

template <class Lanes>
float sum_of(const ops::RowSum& row) {
  f32x16 sums[4];
#pragma GCC unroll 4
  for (f32x16& sum : sums) sum = f32x16::zero();
  std::int64_t i = 0;
  for (; i + 64 <= row.n; i += 64) {
    const Two x = Lanes::load_two(at<Lanes>(row.input, i)), y = Lanes::load_two(at<Lanes>(row.input, i + 32));
    sums[0] = sums[0] + x.a;
    sums[1] = sums[1] + x.b;
    sums[2] = sums[2] + y.a;
    sums[3] = sums[3] + y.b;
  }
  for (; i < row.n; i += 16) sums[0] = sums[0] + Lanes::load_partial(at<Lanes>(row.input, i), row.n - i);
  return reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void RowSumKernel::run(const RowSum& row) {
  using namespace DODONA_TIER;
  with_lanes(row.type, [&](auto lanes_of) { *row.result = sum_of<decltype(lanes_of)>(row); });
}
template void RowSumKernel::run<tier::DODONA_TIER>(const RowSum&);

}  // namespace dodona::ops
