#include "ops/draws/above_row.h"

#include "simd/f32x16.h"
#include "simd/stream.h"

namespace dodona::DODONA_TIER {
namespace {

/// What lies above the bar, zero for the rest; lanes from n on are nothing.
DODONA_INLINE f32x16 passing(f32x16 x, f32x16 bar) {
  return select(x > bar, x, f32x16::zero());
}

DODONA_INLINE f32x16 loaded(const float* x, std::int64_t n) {
  return n >= 16 ? f32x16::load(x) : f32x16::load_partial(x, n, -__builtin_inff());
}

DODONA_INLINE float block_sum(const float* x, std::int64_t n, f32x16 bar) {
  f32x16 even = f32x16::zero(), odd = f32x16::zero();
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    even = even + passing(f32x16::load(x + i), bar);
    odd = odd + passing(f32x16::load(x + i + 16), bar);
  }
  for (; i < n; i += 16) even = even + passing(loaded(x + i, n - i), bar);
  return reduce_add(even + odd);
}

void block_sums(const ops::BlockSums& call) {
  const f32x16 bar = f32x16::splat(call.bar);
  for (std::int64_t begin = 0, b = 0; begin < call.n; begin += ops::sum_block, ++b)
    call.sums[b] = block_sum(call.x + begin, call.n - begin < ops::sum_block ? call.n - begin : ops::sum_block, bar);
}

void two_bars(const ops::TwoBars& call) {
  const f32x16 low = f32x16::splat(call.bars[0]), high = f32x16::splat(call.bars[1]), one = f32x16::splat(1.0f), zero = f32x16::zero();
  ops::Above above[2] = {{0, 0}, {0, 0}};
  for (std::int64_t begin = 0; begin < call.n; begin += ops::sum_block) {
    const std::int64_t end = call.n - begin < ops::sum_block ? call.n : begin + ops::sum_block;
    f32x16 sum_low = zero, sum_high = zero, count_low = zero, count_high = zero;
    for (std::int64_t i = begin; i < end; i += 16) {
      const f32x16 x = loaded(call.x + i, end - i);
      const mask16 over_low = x > low, over_high = x > high;
      sum_low = sum_low + select(over_low, x, zero);
      count_low = count_low + select(over_low, one, zero);
      sum_high = sum_high + select(over_high, x, zero);
      count_high = count_high + select(over_high, one, zero);
    }
    above[0].sum += static_cast<double>(reduce_add(sum_low));
    above[0].count += static_cast<double>(reduce_add(count_low));
    above[1].sum += static_cast<double>(reduce_add(sum_high));
    above[1].count += static_cast<double>(reduce_add(count_high));
  }
  call.above[0] = above[0];
  call.above[1] = above[1];
}

void gather(const ops::Gather& call) {
  const f32x16 bar = f32x16::splat(call.bar);
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < call.n; i += 16) {
    unsigned bits = (loaded(call.x + i, call.n - i) > bar).bits();
    for (; bits != 0; bits &= bits - 1) {
      const std::int64_t at = i + __builtin_ctz(bits);
      const std::int32_t position = call.from != nullptr ? call.from[at] : static_cast<std::int32_t>(at);
      call.values[count] = call.x[at];
      if (call.positions != nullptr) call.positions[count] = position;
      ++count;
    }
  }
  *call.count = count;
}

void stride_maxima(const ops::StrideMaxima& call) {
  const f32x16 lowest = f32x16::splat(-__builtin_inff());
  for (std::int64_t j = 0; j < ops::StrideMaxima::groups; j += 16) lowest.store(call.maxima + j);
  for (std::int64_t begin = 0; begin < call.n; begin += ops::StrideMaxima::groups) {
    const std::int64_t n = call.n - begin < ops::StrideMaxima::groups ? call.n - begin : ops::StrideMaxima::groups;
    for (std::int64_t j = 0; j < n; j += 16)
      max(loaded(call.x + begin + j, n - j), f32x16::load(call.maxima + j)).store(call.maxima + j);  // the second one stays where x is NaN
  }
}

/// to = body(x), of n elements. Only a row's last ones are stored through a mask, which is slow.
template <class Body>
DODONA_INLINE void put_row(const float* x, std::int64_t n, float* to, bool past_caches, const Body& body) {
  std::int64_t i = 0;
  const bool streamed = past_caches && reinterpret_cast<std::uintptr_t>(to) % 64 == 0;
  if (streamed)
    for (; i + 16 <= n; i += 16) stream(as_i32(body(f32x16::load(x + i))), to + i);
  for (; i + 16 <= n; i += 16) body(f32x16::load(x + i)).store(to + i);
  if (i < n) body(loaded(x + i, n - i)).store_partial(to + i, n - i);
  if (streamed) stream_end();
}

void scale_above(const ops::ScaleAbove& call) {
  const f32x16 bar = f32x16::splat(call.bar), factor = f32x16::splat(call.factor), zero = f32x16::zero();
  put_row(
      call.x, call.n, call.to, call.streamed, [&](f32x16 x) __attribute__((always_inline)) { return select(x > bar, x * factor, zero); });
}

void mask_below(const ops::MaskBelow& call) {
  const f32x16 bar = f32x16::splat(call.bar), lowest = f32x16::splat(-__builtin_inff());
  put_row(
      call.x, call.n, call.to, call.streamed, [&](f32x16 x) __attribute__((always_inline)) { return select(x > bar, x, lowest); });
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void AboveRowKernel::run(const BlockSums& call) {
  DODONA_TIER::block_sums(call);
}
template <class Tier>
void AboveRowKernel::run(const TwoBars& call) {
  DODONA_TIER::two_bars(call);
}
template <class Tier>
void AboveRowKernel::run(const Gather& call) {
  DODONA_TIER::gather(call);
}
template <class Tier>
void AboveRowKernel::run(const StrideMaxima& call) {
  DODONA_TIER::stride_maxima(call);
}
template <class Tier>
void AboveRowKernel::run(const ScaleAbove& call) {
  DODONA_TIER::scale_above(call);
}
template <class Tier>
void AboveRowKernel::run(const MaskBelow& call) {
  DODONA_TIER::mask_below(call);
}
template void AboveRowKernel::run<tier::DODONA_TIER>(const BlockSums&);
template void AboveRowKernel::run<tier::DODONA_TIER>(const TwoBars&);
template void AboveRowKernel::run<tier::DODONA_TIER>(const Gather&);
template void AboveRowKernel::run<tier::DODONA_TIER>(const StrideMaxima&);
template void AboveRowKernel::run<tier::DODONA_TIER>(const ScaleAbove&);
template void AboveRowKernel::run<tier::DODONA_TIER>(const MaskBelow&);

}  // namespace dodona::ops
