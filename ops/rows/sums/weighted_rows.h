// Sums of weighted rows, one for each token: what unpermutes the rows of experts.
#pragma once

#include <cstdint>
#include <vector>

#include "core/define.h"
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
  const char* rows_from = "src2dst";      ///< the argument that row_of is from
  const char* output_name = "output";

  /// One slot after the other; a negative row adds nothing.
  void add(std::int64_t row, double weight);
  /// Throws naming the argument that the rows are from.
  void require_rows() const;
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

template <class Op, WeightedRows (*sums_of)(const Op&), WeightedRowsMistake mistake>
void golden_weighted_rows_of(const Op& op, const Exec& exec, Reference* reference) {
  const WeightedRows sums = sums_of(op);
  const GoldenOutput out(sums.output, reference, sums.output_name);
  out.make_open();
  golden_weighted_rows(sums, out, exec, mistake);
}

/// All of an op that is such sums, but its contract and its case lines.
template <class Op, WeightedRows (*sums_of)(const Op&)>
Implementation<Op> weighted_rows() {
  Implementation<Op> all;
  all.golden = golden_weighted_rows_of<Op, sums_of, WeightedRowsMistake::none>;
  all.fast = all.hopper = [](const Op& op, const Exec& exec) { add_weighted_rows(sums_of(op), exec); };
  all.check = [](const Op& op) { sums_of(op).require_rows(); };
  all.mistakes = {
      {"weights-left-out", "rows are added as they are", golden_weighted_rows_of<Op, sums_of, WeightedRowsMistake::weights_left_out>}};
  return all;
}

}  // namespace dodona::ops
