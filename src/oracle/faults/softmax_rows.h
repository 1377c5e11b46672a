// Rows of a softmax, or of its logarithm, as golden mode's exact numbers have them: what faults of its sums and maxima start from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "oracle/faults/faults.h"

namespace dodona::oracle {

struct Softmax {
  std::string logits, probs;
  std::int64_t rows = 0, columns = 0;
  bool logarithm = false;
};
/// Of a call that gives one, and whose exact numbers are kept.
std::optional<Softmax> softmax_of(const FaultCase& call);

/// Of a row, by what golden mode has of it: exp(x - max), and what x is.
struct SoftmaxRow {
  std::vector<double> weights, scores;  ///< scores as they are divided by the temperature
  double sum = 0, most = 0;
};
/// Nothing where the row has no largest probability.
std::optional<SoftmaxRow> softmax_row(const FaultCase& call, const Softmax& softmax, std::int64_t row);

}  // namespace dodona::oracle
