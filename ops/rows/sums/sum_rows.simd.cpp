#include "ops/rows/sums/sum_rows.h"

#include "ops/base/row_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::SumRows;

/// Elements by which rows are read ahead.
constexpr std::int64_t prefetched = 512;

/// Of term j: the rows of `first`, then the others.
DODONA_INLINE const void* source_of(const SumRows& row, std::int64_t j) {
  if (j < row.first_count) return row.first[j];
  j -= row.first_count;
  const std::int64_t source = row.permutation != nullptr ? row.permutation[j] : j;
  return static_cast<const char*>(row.input) + source * row.row_bytes;
}

/// What is read after element i of term j, some elements on: of the row, or of the one that has its place among the next ones.
template <class Lanes>
DODONA_INLINE const char* source_ahead(const SumRows& row, std::int64_t j, std::int64_t i) {
  const bool beyond = i + prefetched >= row.n && row.more && j >= row.first_count;
  const void* const source = source_of(row, beyond ? j + row.count : j);
  return static_cast<const char*>(at<Lanes>(source, i + prefetched - (beyond ? row.n : 0)));
}

/// Of the two neighbours of what `rounded + error` is exactly, the odd one: it rounds on to a narrower type as the exact number does.
DODONA_INLINE f32x16 to_odd(f32x16 rounded, f32x16 error) {
  const f32x16 zero = f32x16::zero();
  const i32x16 bits = as_i32(rounded), one = i32x16::splat(1);
  const mask16 off = ((error > zero) | (error < zero)) & ((bits & one) == i32x16::zero());
  const mask16 outward = ~((error > zero) ^ (rounded > zero));
  return as_f32(select(off, bits + select(outward, one, i32x16::splat(-1)), bits));
}

/// The same in double, whose products of narrow numbers are exact whatever their size.
inline float fma_to_odd(float a, float x, float sum) {
  const double product = double{a} * x, total = sum + product, back = total - sum;
  const double error = (sum - (total - back)) + (product - back);
  const auto rounded = static_cast<float>(total);
  const double left = (total - rounded) + error;
  std::int32_t bits = 0;
  __builtin_memcpy(&bits, &rounded, sizeof bits);
  if (bits % 2 == 0 && (left > 0 || left < 0)) bits += (left > 0) == (bits >= 0) ? 1 : -1;  // a zero has neighbours on its own side alone
  float odd = 0;
  __builtin_memcpy(&odd, &bits, sizeof odd);
  return odd;
}

/// factor * x + sum of a narrow type, rounded once. In fp32 the error of a sum is known where its product is exact.
template <class Lanes>
DODONA_INLINE f32x16 fma_rounded_once(f32x16 factor, f32x16 x, f32x16 sum) {
  if (Lanes::bytes == 4) return fma(factor, x, sum);
  const f32x16 product = factor * x, total = sum + product, back = total - sum;
  const f32x16 size = abs(product);
  const mask16 exact = (size >= f32x16::splat(0x1p-100f)) & (size <= f32x16::splat(0x1p126f));
  const mask16 nothing = (factor == f32x16::zero()) | (x == f32x16::zero());
  if (all(exact | nothing)) return Lanes::round(to_odd(total, (sum - (total - back)) + (product - back)));
  alignas(64) float a[16], b[16], c[16];
  factor.store(a), x.store(b), sum.store(c);
  for (int i = 0; i < 16; ++i) c[i] = fma_to_odd(a[i], b[i], c[i]);
  return Lanes::round(f32x16::load(c));
}

template <class Lanes>
DODONA_INLINE f32x16 added(const SumRows& row, std::int64_t j, f32x16 x, f32x16 sum) {
  if (row.factors == nullptr) return row.rounded_between ? Lanes::round(sum + x) : sum + x;
  const f32x16 factor = f32x16::splat(row.factors[j]);
  return row.rounded_between ? fma_rounded_once<Lanes>(factor, x, sum) : fma(factor, x, sum);
}

template <class Lanes>
void sum_row(const SumRows row) {
  const f32x16 scale = f32x16::splat(row.scale), start = f32x16::splat(row.start);
  const std::int64_t count = row.first_count + row.count;
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
    for (std::int64_t j = 0; j < count; ++j) {
      const void* const source = source_of(row, j);
      // Of many rows, each is asked for before its turn: the machine follows fewer streams by itself.
      const char* const ahead = source_ahead<Lanes>(row, j, i);
      for (int line = 0; line < Lanes::bytes; ++line) __builtin_prefetch(ahead + 64 * line);
      const Two x = Lanes::load_two(at<Lanes>(source, i)), y = Lanes::load_two(at<Lanes>(source, i + 32));
      sum = {added<Lanes>(row, j, x.a, sum.a), added<Lanes>(row, j, x.b, sum.b)};
      next = {added<Lanes>(row, j, y.a, next.a), added<Lanes>(row, j, y.b, next.b)};
    }
    store(sum, i);
    store(next, i + 32);
  }
  for (; i + 32 <= row.n; i += 32) {
    Two sum{start, start};
    for (std::int64_t j = 0; j < count; ++j) {
      const Two x = Lanes::load_two(at<Lanes>(source_of(row, j), i));
      sum = {added<Lanes>(row, j, x.a, sum.a), added<Lanes>(row, j, x.b, sum.b)};
    }
    store(sum, i);
  }
  for (; i < row.n; i += 16) {
    f32x16 sum = start;
    for (std::int64_t j = 0; j < count; ++j)
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
