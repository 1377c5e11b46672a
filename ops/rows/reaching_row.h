// Which scores of a row reach a bound.
#pragma once

#include <cstdint>

#include "simd/tier.h"

namespace dodona::ops {

struct ReachingRow {
  const float* scores;
  std::int64_t n;
  std::int32_t least;       ///< by score_order, at most first_nan_in_order
  std::int32_t* positions;  ///< room for n
};

struct ReachingRowKernel {
  /// Writes the positions of the scores whose order is `least` or above, rising, and says how many these are.
  template <class Tier>
  static std::int64_t run(const ReachingRow& row);
};

}  // namespace dodona::ops
