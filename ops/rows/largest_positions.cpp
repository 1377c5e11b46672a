#include "ops/rows/largest_positions.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <span>

#include "ops/rows/reaching_row.h"
#include "ops/rows/score_order.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t sampled = 1024;

/// A bound that rather more than `count` scores reach, most likely: taken from every few ones. Without a doubt all scores reach the least.
std::int32_t likely_bound(const float* scores, std::int64_t n, std::int64_t count) {
  const std::int64_t step = n / sampled;
  if (step < 4) return std::numeric_limits<std::int32_t>::min();
  const double share = static_cast<double>(count) / static_cast<double>(n) * static_cast<double>(sampled);
  // Four standard deviations above what is expected.
  const auto rank = static_cast<std::int64_t>(share + 4 * std::sqrt(share) + 4);
  if (rank >= sampled) return std::numeric_limits<std::int32_t>::min();
  std::array<std::int32_t, static_cast<std::size_t>(sampled)> orders;
  for (std::size_t i = 0; i < orders.size(); ++i) orders[i] = score_order(scores[static_cast<std::int64_t>(i) * step]);
  std::nth_element(orders.begin(), orders.begin() + rank, orders.end(), std::greater<>());
  return std::min(orders[static_cast<std::size_t>(rank)], first_nan_in_order);
}

/// The order of the `count`-th largest, and how many are larger.
struct Bound {
  std::uint32_t order;
  std::int64_t larger;
};

/// `orders` are moved about. Each pass counts by the bits in which those that are left differ.
Bound bound_of(std::span<std::uint32_t> orders, std::int64_t count) {
  constexpr int bits_a_pass = 11;
  std::int64_t wanted = count, larger = 0;
  while (true) {
    const auto [least, most] = std::minmax_element(orders.begin(), orders.end());
    const std::uint32_t low = *least, range = *most - low;
    if (range == 0) return {low, larger};
    const int shift = std::max(0, static_cast<int>(std::bit_width(range)) - bits_a_pass);
    std::array<std::int32_t, std::size_t{1} << bits_a_pass> counts{};
    for (const std::uint32_t order : orders) ++counts[(order - low) >> shift];
    std::size_t bin = range >> shift;
    for (; counts[bin] < wanted; --bin) {
      wanted -= counts[bin];
      larger += counts[bin];
    }
    const auto in_bin = [&](std::uint32_t order) { return (order - low) >> shift == bin; };
    std::size_t kept = 0;
    for (const std::uint32_t order : orders) {
      orders[kept] = order;
      kept += in_bin(order) ? 1 : 0;
    }
    orders = orders.first(kept);
  }
}

std::uint32_t as_unsigned(std::int32_t order) {
  return static_cast<std::uint32_t>(order) ^ 0x80000000u;
}

}  // namespace

void largest_positions(const float* scores, std::int64_t n, std::int64_t count, std::int32_t* positions, const Exec& exec) {
  const Scratch memory = exec.scratch.take(static_cast<std::size_t>(n) * (sizeof(std::int32_t) + 2 * sizeof(std::uint32_t)));
  auto* const candidates = memory.as<std::int32_t>();
  auto* const orders = reinterpret_cast<std::uint32_t*>(candidates + n);
  const auto gather = [&](std::int32_t least) { return dispatch<ReachingRowKernel>(exec.isa, ReachingRow{scores, n, least, candidates}); };
  const std::int32_t bound = likely_bound(scores, n, count);
  std::int64_t found = gather(bound);
  if (found < count) found = gather(std::numeric_limits<std::int32_t>::min());
  for (std::int64_t i = 0; i < found; ++i) orders[i] = orders[n + i] = as_unsigned(score_order(scores[candidates[i]]));
  const Bound exact = bound_of({orders + n, static_cast<std::size_t>(found)}, count);
  std::int64_t ties = count - exact.larger;
  for (std::int64_t i = 0, written = 0; written < count; ++i) {
    const bool taken = orders[i] > exact.order || (orders[i] == exact.order && ties > 0);
    ties -= orders[i] == exact.order ? 1 : 0;
    positions[written] = candidates[i];
    written += taken ? 1 : 0;
  }
}

}  // namespace dodona::ops
