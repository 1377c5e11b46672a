#include "ops/rows/order/largest_positions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ops/rows/order/reaching_row.h"
#include "ops/rows/order/score_order.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t sampled = 1024;
constexpr std::int32_t least_order = std::numeric_limits<std::int32_t>::min();

/// A bound that rather more than `count` scores reach, most likely: taken from every few ones. Without a doubt all scores reach the least.
std::int32_t likely_bound(const float* scores, std::int64_t n, std::int64_t count, Isa isa) {
  const std::int64_t step = n / sampled;
  if (step < 4) return least_order;
  const double share = static_cast<double>(count) / static_cast<double>(n) * static_cast<double>(sampled);
  // Four standard deviations above what is expected.
  const auto rank = static_cast<std::int64_t>(share + 4 * std::sqrt(share) + 4);
  if (rank >= sampled) return least_order;
  std::array<float, sampled> sample;
  std::array<std::int32_t, sampled + reaching_slack> positions, orders;
  for (std::size_t i = 0; i < sample.size(); ++i) sample[i] = scores[static_cast<std::int64_t>(i) * step];
  dispatch<ReachingRowKernel>(isa, ReachingRow{sample.data(), sampled, least_order, positions.data(), orders.data()});
  const OrderBound bound = dispatch<OrderBoundKernel>(isa, orders.data(), sampled, rank + 1);
  return std::min(bound.order, first_nan_in_order);
}

}  // namespace

void largest_positions(const float* scores, std::int64_t n, std::int64_t count, std::int32_t* positions, const Exec& exec) {
  const std::int64_t room = n + reaching_slack;
  const Scratch memory = exec.scratch.take(static_cast<std::size_t>(2 * room) * sizeof(std::int32_t));
  auto* const candidates = memory.as<std::int32_t>();
  std::int32_t* const orders = candidates + room;
  const auto gather = [&](std::int32_t least) {
    return dispatch<ReachingRowKernel>(exec.isa, ReachingRow{scores, n, least, candidates, orders});
  };
  std::int64_t found = gather(likely_bound(scores, n, count, exec.isa));
  if (found < count) found = gather(least_order);
  const OrderBound bound = dispatch<OrderBoundKernel>(exec.isa, orders, found, count);
  dispatch<WithinBoundKernel>(exec.isa, orders, found, bound, candidates);
  std::copy_n(candidates, count, positions);
}

}  // namespace dodona::ops
