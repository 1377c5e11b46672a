#include "ops/rows/order/reaching_row.h"

#include "simd/compress.h"

namespace dodona::DODONA_TIER {
namespace {

constexpr std::int32_t nans_of_a_sign = 0x7FFFFF, first_nan = 0x7F000002;

/// As score_order, but NaNs of positive sign below the others: no bound lies among them.
DODONA_INLINE i32x16 nearly_order(f32x16 scores) {
  const i32x16 bits = as_i32(scores);
  return (bits ^ (sra<31>(bits) & i32x16::splat(0x7FFFFFFF))) - i32x16::splat(nans_of_a_sign);
}
/// score_order, from that.
DODONA_INLINE i32x16 order_of(i32x16 nearly) {
  const i32x16 few = i32x16::splat(nans_of_a_sign);
  const i32x16 nan = select(nearly > i32x16::splat(first_nan + nans_of_a_sign - 1), nearly - few, nearly + few);
  return select(nearly > i32x16::splat(first_nan - 1), nan, nearly);
}

std::int64_t reaching(const ops::ReachingRow& row) {
  const i32x16 least = i32x16::splat(row.least);
  i32x16 at = lane_index(), largest = i32x16::splat(row.least);
  std::int64_t count = 0;
  const auto take = [&](i32x16 orders, mask16 kept) __attribute__((always_inline)) {
    largest = max(orders, largest);
    compress(orders, kept, row.orders + count);
    count += compress(at, kept, row.positions + count);
    at = at + i32x16::splat(16);
  };
  std::int64_t i = 0;
  for (; i + 16 <= row.n; i += 16) {
    const i32x16 orders = nearly_order(f32x16::load(row.scores + i));
    take(orders, ~(orders < least));
  }
  if (i < row.n) {
    const i32x16 orders = nearly_order(f32x16::load_partial(row.scores + i, row.n - i));
    take(orders, ~(orders < least) & mask16::first(row.n - i));
  }
  if (any(largest > i32x16::splat(first_nan - 1)))
    for (i = 0; i < count; i += 16) order_of(i32x16::load(row.orders + i)).store(row.orders + i);
  return count;
}

/// Sixteen orders, or what is left of them and then the least there is.
DODONA_INLINE i32x16 orders_at(const std::int32_t* orders, std::int64_t i, std::int64_t n) {
  const i32x16 lowest = i32x16::splat(-0x7FFFFFFF - 1);
  return i + 16 <= n ? i32x16::load(orders + i) : select(mask16::first(n - i), i32x16::load_partial(orders + i, n - i), lowest);
}
std::int64_t count_above(const std::int32_t* orders, std::int64_t n, std::int32_t bar) {
  const i32x16 above = i32x16::splat(bar), one = i32x16::splat(1), zero = i32x16::zero();
  i32x16 even = zero, odd = zero;
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    even = even + select(i32x16::load(orders + i) > above, one, zero);
    odd = odd + select(i32x16::load(orders + i + 16) > above, one, zero);
  }
  for (; i < n; i += 16) even = even + select(orders_at(orders, i, n) > above, one, zero);
  std::int32_t lanes[16];
  (even + odd).store(lanes);
  std::int64_t count = 0;
  for (const std::int32_t lane : lanes) count += lane;
  return count;
}

/// By halves of what lies between: a dozen or so, for as a rule a bar that leaves just as many is met on the way.
ops::OrderBound bound_of(const std::int32_t* orders, std::int64_t n, std::int64_t count) {
  i32x16 least = i32x16::splat(0x7FFFFFFF), most = i32x16::splat(-0x7FFFFFFF - 1);
  for (std::int64_t i = 0; i < n; i += 16) {
    most = max(orders_at(orders, i, n), most);
    if (i + 16 <= n) least = min(i32x16::load(orders + i), least);
  }
  std::int32_t lows[16], highs[16];
  least.store(lows);
  most.store(highs);
  std::int32_t low = lows[0], high = highs[0];
  for (int lane = 1; lane < 16; ++lane) {
    low = lows[lane] < low ? lows[lane] : low;
    high = highs[lane] > high ? highs[lane] : high;
  }
  for (std::int64_t i = n / 16 * 16; i < n; ++i) low = orders[i] < low ? orders[i] : low;
  // At least `count` are low or above, and `larger`, which are fewer, above high.
  std::int64_t larger = 0;
  while (low < high) {
    const std::uint32_t range = static_cast<std::uint32_t>(high) - static_cast<std::uint32_t>(low);
    const auto below = static_cast<std::int32_t>(static_cast<std::uint32_t>(low) + (range - 1) / 2);
    const std::int64_t above = count_above(orders, n, below);
    if (above == count) return {below, 0};
    if (above > count) {
      low = below + 1;
    } else {
      high = below;
      larger = above;
    }
  }
  return {low, count - larger};
}

void within_bound(const std::int32_t* orders, std::int64_t n, ops::OrderBound bound, std::int32_t* positions) {
  const i32x16 bar = i32x16::splat(bound.order);
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < n; i += 16) {
    const i32x16 x = orders_at(orders, i, n);
    mask16 kept = x > bar;
    if (bound.ties > 0) {
      std::uint32_t ties = ((x == bar) & mask16::first(n - i)).bits();
      while (__builtin_popcount(ties) > bound.ties) ties ^= 0x80000000u >> __builtin_clz(ties);
      bound.ties -= __builtin_popcount(ties);
      kept = kept | mask16::from_bits(static_cast<std::uint16_t>(ties));
    }
    // What is overwritten has been read: no more are kept than there were.
    count += compress(i32x16::load(positions + i), kept, positions + count);
  }
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
std::int64_t ReachingRowKernel::run(const ReachingRow& row) {
  return DODONA_TIER::reaching(row);
}
template std::int64_t ReachingRowKernel::run<tier::DODONA_TIER>(const ReachingRow&);

template <class Tier>
OrderBound OrderBoundKernel::run(const std::int32_t* orders, std::int64_t n, std::int64_t count) {
  return DODONA_TIER::bound_of(orders, n, count);
}
template OrderBound OrderBoundKernel::run<tier::DODONA_TIER>(const std::int32_t*, std::int64_t, std::int64_t);

template <class Tier>
void WithinBoundKernel::run(const std::int32_t* orders, std::int64_t n, OrderBound bound, std::int32_t* positions) {
  DODONA_TIER::within_bound(orders, n, bound, positions);
}
template void WithinBoundKernel::run<tier::DODONA_TIER>(const std::int32_t*, std::int64_t, OrderBound, std::int32_t*);

}  // namespace dodona::ops
