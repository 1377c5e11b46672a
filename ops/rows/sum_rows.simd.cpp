#include "ops/rows/sum_rows.h"

#include "ops/base/row_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::SumRows;

/// Elements by which rows are read ahead.
constexpr std::int64_t prefetched = 512;

DODONA_INLINE const void* source_of(const SumRows& row, std::int64_t j) {
  const std::int64_t source = row.permutation != nullptr ? row.permutation[j] : j;
  return static_cast<const char*>(row.input) + source * row.row_bytes;
}

template <class Lanes>
DODONA_INLINE f32x16 added(const SumRows& row, std::int64_t j, f32x16 x, f32x16 sum) {
  const f32x16 next = row.factors != nullptr ? fma(f32x16::splat(row.factors[j]), x, sum) : sum + x;
  return row.rounded_between ? Lanes::round(next) : next;
}

template <class Lanes>
void sum_row(const SumRows row) {
  const f32x16 scale = f32x16::splat(row.scale), start = f32x16::splat(row.start);
  const bool streamed = row.writing != ops::Writing::cached && can_stream(row.output);
  const auto store = [&](Two sum, std::int64_t i) {
    sum = {sum.a * scale, sum.b * scale};
    if (streamed) {
      Lanes::stream_two(sum, at<Lanes>(row.output, i));
    } else {
      Lanes::store_two(sum, at<Lanes>(row.output, i));
    }
  };
  std::int64_t i = 0;
  for (; i + 64 <= row.n; i += 64) {
    Two sum{start, start}, next{start, start};
    for (std::int64_t j = 0; j < row.count; ++j) {
      const void* const source = source_of(row, j);
      // Of many rows, each is asked for before its turn: the machine follows fewer streams by itself.
      for (int line = 0; line < Lanes::bytes; ++line)
        __builtin_prefetch(static_cast<const char*>(at<Lanes>(source, i + prefetched)) + 64 * line);
      const Two x = Lanes::load_two(at<Lanes>(source, i)), y = Lanes::load_two(at<Lanes>(source, i + 32));
      sum = {added<Lanes>(row, j, x.a, sum.a), added<Lanes>(row, j, x.b, sum.b)};
      next = {added<Lanes>(row, j, y.a, next.a), added<Lanes>(row, j, y.b, next.b)};
    }
    store(sum, i);
    store(next, i + 32);
  }
  for (; i + 32 <= row.n; i += 32) {
    Two sum{start, start};
    for (std::int64_t j = 0; j < row.count; ++j) {
      const Two x = Lanes::load_two(at<Lanes>(source_of(row, j), i));
      sum = {added<Lanes>(row, j, x.a, sum.a), added<Lanes>(row, j, x.b, sum.b)};
    }
    store(sum, i);
  }
  for (; i < row.n; i += 16) {
    f32x16 sum = start;
    for (std::int64_t j = 0; j < row.count; ++j)
      sum = added<Lanes>(row, j, Lanes::load_partial(at<Lanes>(source_of(row, j), i), row.n - i), sum);
    Lanes::store_partial(sum * scale, at<Lanes>(row.output, i), row.n - i);
  }
  if (row.writing == ops::Writing::streamed_last) stream_end();
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void SumRowsKernel::run(const SumRows& row) {
  using namespace DODONA_TIER;
  with_lanes(row.type, [&](auto lanes) { sum_row<decltype(lanes)>(row); });
}
template void SumRowsKernel::run<tier::DODONA_TIER>(const SumRows&);

}  // namespace dodona::ops
