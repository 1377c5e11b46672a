// What golden mode asks of sums, for eight lines at a time, each in the order that one alone has: the same bits for any number of lines.
#pragma once

#include <cstdint>

#include "simd/tier.h"

namespace dodona::ops {

/// Lines that are taken together.
inline constexpr std::int64_t lines_together = 8;

/// Of the products a[k] * b[k], k ascending, in double.
struct ProductSums {
  double sum = 0;
  double positive = 0, negative = 0;  ///< of all positive products and of all negative ones, their magnitudes
};

/// What Order::contiguous asks.
struct ContiguousSums : ProductSums {
  double lowest = 0, highest = 0;  ///< the smallest and the largest sum up to some k, or 0
  double largest = 0;              ///< product of two magnitudes, none taken for less than its normal, where it is not zero
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

/// Exponents of zeros: with any other one no product's.
inline constexpr std::int16_t exponent_of_zero = -8192;

/// What Order::any and Order::steps ask.
struct StepSums : ProductSums {
  /// Bound of what a tensor core loses on an ascending sum. At each step every product is cut toward zero to a multiple of
  /// u = 2^(e-addend_bits), e the largest exponent among the step's products and the accumulator. So a product loses exactly |p| mod u. A
  /// larger u loses no less, so e is taken for an accumulator of the largest magnitude of all partial sums at whole steps plus what may
  /// have been lost so far. Losses of positive products lower the sum and those of negative ones raise it. The accumulator has no more
  /// than sum_bits below its exponent, and none below addend_bits under the last step's products: only larger products make it lose some.
  /// The new sum is cut where it has more than sum_bits above the grid of its addends: where it outgrows the exponents of all of them, or
  /// nearly does.
  double lost = 0;
};
/// What is asked, each with all before it.
enum class StepQuestion : std::uint8_t { sum, magnitudes, lost };
struct StepLines {
  const double* lines;                   ///< [k][lines_together]
  const double* column;                  ///< [k]
  const std::int16_t* exponents;         ///< of the lines' representations, likewise, for `lost`
  const std::int16_t* column_exponents;  ///< likewise
  std::int64_t k;
  int products, addend_bits, sum_bits;  ///< of the unit's step, for `lost`
  StepQuestion question;
  StepSums* sums;  ///< [lines_together]
};
struct StepLinesKernel {
  template <class Tier>
  static void run(const StepLines& lines);
};

}  // namespace dodona::ops
