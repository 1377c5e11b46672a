// Sums of weighted rows, one for each token: what unpermutes the rows of experts.
#pragma once

#include <cstdint>
#include <vector>

#include "dodona/exec.h"
#include "dodona/tensor.h"
#include "ops/base/golden_output.h"

namespace dodona::ops {

/// output[t] = scale * sum over the slots of token t of weights * rows, from zero, in order.
struct WeightedRows {
  Tensor rows;    ///< [R, D], dense
  Tensor output;  ///< [T, D], of the type of rows, dense
  float scale = 1;
  /// Weights are numbers of the type, and every product with the sum before it is rounded once, to the type; else all of it is fp32, and
  /// rounded at last.
  bool rounded_between = false;
  std::vector<std::int64_t> row_of = {};  ///< of every slot, token by token; -1: it adds nothing
  std::vector<float> weights = {};        ///< of every slot

  /// One slot after the other; a negative row adds nothing.
  void add(std::int64_t row, double weight);
  /// Throws naming the argument that the rows are from.
  void require_rows(const char* argument) const;
  std::int64_t slots() const { return output.size(0) > 0 ? static_cast<std::int64_t>(row_of.size()) / output.size(0) : 0; }
};

/// Mistakes of such kernels.
enum class WeightedRowsMistake { none, weights_left_out, scale_left_out };

/// Budget in fp32: two roundings a row and one for the scale, of the sum of magnitudes; below 2^-90 two flushed denormals a row; all of a
/// term whose row or weight is denormal. Sums of magnitudes beyond fp32 are open. Rounded between, no bit is open.
void golden_weighted_rows(const WeightedRows& sums, const GoldenOutput& out, const Exec& exec,
                          WeightedRowsMistake mistake = WeightedRowsMistake::none);
/// By fma, denormals kept: also what Triton's kernels give on an H100.
void add_weighted_rows(const WeightedRows& sums, const Exec& exec);

}  // namespace dodona::ops
