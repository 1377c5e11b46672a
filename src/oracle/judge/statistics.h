// Figures about one judged output: use of the budget, distance in units of the last place, and what customary comparisons would have said.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "oracle/judge/judge.h"

namespace dodona::oracle {

struct Bin {
  std::string label;
  std::int64_t count = 0;
};

/// torch.testing.assert_close with its defaults: |actual - expected| <= atol + rtol*|expected|, NaN never equal.
struct AssertClose {
  double rtol = 0, atol = 0;  ///< both 0: equal values (integers, and floats of 8 bits or less)
  std::int64_t mismatched = 0;
  bool passes() const { return mismatched == 0; }
};

struct ErrorStatistics {
  std::int64_t compared = 0;
  /// Shares of the budget over the compared elements; infinite where nothing is open and the bits differ.
  double share_max = 0, share_p999 = 0, share_median = 0;
  /// Representable numbers between golden and actual: 0, 1, 2, 3-4, 5-8 ..., and NaN on one side only. Integers count their difference.
  std::vector<Bin> ulps;
  double max_abs = 0, max_rel = 0;     ///< finite elements; relative to |golden|, where that is not 0
  double relative_l2 = 0, cosine = 1;  ///< over elements that are finite on both sides
  std::int64_t only_nan = 0;           ///< actual is NaN, golden is not
  std::int64_t not_finite = 0;         ///< elements left out of relative_l2 and cosine
  AssertClose assert_close;
};

/// Steps of representable numbers from a to b (bits of `type`); -1 when exactly one of them is NaN.
std::int64_t ulp_distance(DType type, std::uint64_t a, std::uint64_t b);

/// The same figures for any number of threads.
ErrorStatistics statistics_of(const OutputVerdict& output, int threads = 1);

/// How large errors are where golden is of a given size: one per binade of |golden|, zeros first.
struct Binade {
  bool zero = false;
  int exponent = 0;  ///< 2^exponent <= |golden| < 2^(exponent+1)
  std::int64_t count = 0, failing = 0;
  double max_error = 0, mean_error = 0;  ///< |actual - golden|, finite ones
};
std::vector<Binade> by_magnitude(const OutputVerdict& output);

/// Errors along one dimension: one entry per index.
struct Along {
  std::string name;
  std::vector<std::int64_t> failing, compared;  ///< by index
};
/// Every dimension of `shape` but the last that has at least two indices. Shape and names as of logical_view().
std::vector<Along> along_dimensions(const OutputVerdict& output, const Dims& shape, const std::vector<std::string>& names);

}  // namespace dodona::oracle
