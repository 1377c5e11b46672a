#include "ops/moe/apply_shuffle_mul_sum.h"

#include "ops/base/row_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::ShuffleSumRow;

DODONA_INLINE const void* source_of(const ShuffleSumRow& row, std::int64_t j) {
  return static_cast<const char*>(row.input) + row.permutation[j] * row.row_bytes;
}

DODONA_INLINE f32x16 added(const ShuffleSumRow& row, std::int64_t j, f32x16 x, f32x16 sum) {
  return row.factors != nullptr ? fma(f32x16::splat(row.factors[j]), x, sum) : sum + x;
}

template <class Lanes>
void sum_row(const ShuffleSumRow row) {
  const bool streamed = row.writing != ops::Writing::cached && can_stream(row.output);
  std::int64_t i = 0;
  for (; i + 32 <= row.n; i += 32) {
    Two sum{f32x16::zero(), f32x16::zero()};
    for (std::int64_t j = 0; j < row.topk; ++j) {
      const Two x = Lanes::load_two(at<Lanes>(source_of(row, j), i));
      sum = {added(row, j, x.a, sum.a), added(row, j, x.b, sum.b)};
    }
    if (streamed) {
      Lanes::stream_two(sum, at<Lanes>(row.output, i));
    } else {
      Lanes::store_two(sum, at<Lanes>(row.output, i));
    }
  }
  for (; i < row.n; i += 16) {
    f32x16 sum = f32x16::zero();
    for (std::int64_t j = 0; j < row.topk; ++j) sum = added(row, j, Lanes::load_partial(at<Lanes>(source_of(row, j), i), row.n - i), sum);
    Lanes::store_partial(sum, at<Lanes>(row.output, i), row.n - i);
  }
  if (row.writing == ops::Writing::streamed_last) stream_end();
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void ShuffleSumRowKernel::run(const ShuffleSumRow& row) {
  using namespace DODONA_TIER;
  with_lanes(row.type, [&](auto lanes) { sum_row<decltype(lanes)>(row); });
}
template void ShuffleSumRowKernel::run<tier::DODONA_TIER>(const ShuffleSumRow&);

}  // namespace dodona::ops
