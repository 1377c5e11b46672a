// Sums of golden mode's attention for several queries and keys at a time, each in the order that one alone has: the same bits.
#pragma once

#include <cstdint>

#include "simd/tier.h"

namespace dodona::ops {

/// Queries that are taken together.
inline constexpr std::int64_t golden_together = 8;

/// Of each key and query the sum over k ascending of query[k] * key[k], and that of its magnitudes.
struct GoldenScores {
  const double* queries;  ///< [width][golden_together]
  const double* keys;     ///< [count][width]
  std::int64_t count, width;
  double *sums, *magnitudes;  ///< [count][golden_together]
};
struct GoldenScoresKernel {
  template <class Tier>
  static void run(const GoldenScores& scores);
};

/// sums[i] += weights[j] * values[j][i], j ascending.
struct GoldenSums {
  const double* values;  ///< rows of `width` numbers, `stride` apart
  const double* weights;
  std::int64_t count, width, stride;  ///< width: a multiple of 16
  double* sums;
};
struct GoldenSumsKernel {
  template <class Tier>
  static void run(const GoldenSums& sums);
};

}  // namespace dodona::ops
