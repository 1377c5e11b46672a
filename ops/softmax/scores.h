// Scores and weights of attention in golden mode, and how far those of an honest kernel may be off.
#pragma once

#include <cstdint>
#include <vector>

#include "dodona/dtype.h"
#include "ops/base/bounded.h"

namespace dodona::ops {

/// One head of one row: its weights and what the contract leaves open of them.
struct HeadWeights {
  std::vector<double> z, magnitude;  ///< scores, and the sums of |q * k| behind them
  std::vector<double> p;             ///< exact weights, adding up to 1
  std::vector<double> most;          ///< the largest weights that erroneous scores give; this and the next two when bounded
  std::vector<double> drift;         ///< how far erroneous scores move weights
  std::vector<double> lost;          ///< what the rounding of weights for their products takes or adds
  Bounded lse;                       ///< base 2; open where scores may overflow fp32

  /// Score and magnitude of the next key.
  void add_key(const double* query, const double* key, std::int64_t width, double scale);
  /// p and lse of the keys so far: p[j] = exp(scale * z[j] - max) / sum.
  void softmax(double scale);

  bool bounded() const { return !drift.empty(); }
  /// Fills `most`, `drift`, `lost` and the slack of lse, unless nothing is compared. `width`: elements of a key; `type`: what weights are
  /// rounded to for their products.
  void bound(double scale, std::int64_t width, DType type);
};

}  // namespace dodona::ops
