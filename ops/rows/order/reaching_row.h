// The scores of a row that reach a bound, and the bound that a number of them reaches.
#pragma once

#include <cstdint>

#include "simd/tier.h"

namespace dodona::ops {

/// Elements that are written beyond the last one.
inline constexpr std::int64_t reaching_slack = 16;

struct ReachingRow {
  const float* scores;
  std::int64_t n;
  std::int32_t least;       ///< by score_order, at most first_nan_in_order
  std::int32_t* positions;  ///< room for n + reaching_slack
  std::int32_t* orders;     ///< and by score_order what stands there; as much room
};
struct ReachingRowKernel {
  /// Writes the positions of the scores whose order is `least` or above, rising, and says how many these are.
  template <class Tier>
  static std::int64_t run(const ReachingRow& row);
};

/// The `count` largest of n orders, 0 < count <= n, are those above `order` and of those that equal it the first `ties`.
struct OrderBound {
  std::int32_t order;
  std::int64_t ties;
};
struct OrderBoundKernel {
  template <class Tier>
  static OrderBound run(const std::int32_t* orders, std::int64_t n, std::int64_t count);
};

/// Leaves of n positions those whose orders are within the bound.
struct WithinBoundKernel {
  template <class Tier>
  static void run(const std::int32_t* orders, std::int64_t n, OrderBound bound, std::int32_t* positions);
};

}  // namespace dodona::ops
