// What Order::contiguous asks of a sum, for several lines at a time, each in the order that one alone has: the same bits.
#pragma once

#include <cstdint>

#include "simd/tier.h"

namespace dodona::ops {

/// Lines that are taken together.
inline constexpr std::int64_t lines_together = 8;

/// Of the products a[k] * b[k], k ascending, in double.
struct ContiguousSums {
  double sum = 0, lowest = 0, highest = 0;  ///< all of them; the smallest and the largest sum up to some k, or 0
  double positive = 0, negative = 0;        ///< of all positive products and of all negative ones, their magnitudes
  double largest = 0;                       ///< product of two magnitudes, none taken for less than its normal, where it is not zero
};

struct ContiguousLines {
  const double* lines;   ///< [k][lines_together]
  const double* column;  ///< [k]
  std::int64_t k;
  double line_normal, column_normal;  ///< the smallest normal numbers
  ContiguousSums* sums;               ///< [lines_together]
};
struct ContiguousLinesKernel {
  template <class Tier>
  static void run(const ContiguousLines& lines);
};

}  // namespace dodona::ops
