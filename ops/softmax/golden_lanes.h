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

/// What the slack of such sums takes of each value, j ascending: of their distances from the sum as it came out and of their magnitudes.
struct GoldenSlacks {
  const double* values;               ///< rows of `width` numbers, `stride` apart
  const double *drift, *lost, *most;  ///< by value: see HeadWeights
  std::int64_t count, width, stride;  ///< width: a multiple of 16
  const double* exact;
  double above_1;            ///< what a magnitude may count as before the sum is divided
  double may_flush_below;    ///< weights above 0 and below it take all of their products along
  bool distances_may_count;  ///< whether `lost` is of the distance, where that is more than the magnitude
  double *slack, *magnitudes, *undivided, *largest;
};
struct GoldenSlacksKernel {
  template <class Tier>
  static void run(const GoldenSlacks& slacks);
};

}  // namespace dodona::ops
