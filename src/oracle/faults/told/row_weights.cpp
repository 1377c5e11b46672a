#include "oracle/faults/told/row_weights.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "oracle/faults/rewritten.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

/// What each failing row is to golden's: the ratio of sums, which many roundings hardly move.
std::map<std::int64_t, double> factors_of(const OutputVerdict& output) {
  const Tensor &golden = output.detail->golden, &given = output.detail->actual;
  const std::int64_t width = golden.size(-1);
  std::map<std::int64_t, double> found;
  for (const std::int64_t i : output.detail->failing) found.emplace(i / width, 0.0);
  for (auto& [row, factor] : found) {
    double both = 0, squares = 0;
    for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
      const double g = quant::get(golden, i), a = quant::get(given, i);
      if (!std::isfinite(g) || !std::isfinite(a)) return {};
      both += g * a, squares += g * g;
    }
    if (!(squares > 0)) return {};
    factor = both / squares;
  }
  return found;
}

/// Of each row that fails the row whose number in the input makes its factor, the nearest of several; nothing where one has none.
std::map<std::int64_t, std::int64_t> rows_used(const std::map<std::int64_t, double>& factors, const Tensor& weights) {
  constexpr double near = 0.01;
  std::map<std::int64_t, std::int64_t> found;
  for (const auto& [row, factor] : factors) {
    const double wanted = factor * quant::get(weights, row);
    std::int64_t best = -1;
    for (std::int64_t other = 0; other < weights.elements(); ++other)
      if (other != row && std::fabs(quant::get(weights, other) - wanted) <= near * std::fabs(wanted) &&
          (best < 0 || std::abs(other - row) < std::abs(best - row)))
        best = other;
    if (best < 0 || wanted == 0) return {};
    found[row] = best;
  }
  return found;
}

std::string words_of(const std::string& input, const std::map<std::int64_t, std::int64_t>& used) {
  std::string text = input + ": rows are multiplied with other rows' numbers: ";
  constexpr int few = 4;
  int shown = 0;
  for (const auto& [row, other] : used) {
    if (shown++ == few) return text + "...";
    text += (shown > 1 ? ", " : "") + ("row " + std::to_string(row) + " with that of row " + std::to_string(other));
  }
  return text;
}

}  // namespace

std::optional<Explanation> row_weights(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                       const JudgeOptions& options) {
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.failing == 0 || output.detail == nullptr || output.failing != verdict.failing()) continue;
    const Tensor& golden = output.detail->golden;
    const ReferenceOutput* const reference = call.golden.reference.find(output.name);
    constexpr std::int64_t least_width = 8;
    if (!is_float(golden.dtype()) || bits(golden.dtype()) <= 8 || golden.rank() < 2 || golden.size(-1) < least_width ||
        golden.elements() > most_elements || reference == nullptr || reference->exact.size() != static_cast<std::size_t>(golden.elements()))
      continue;
    const std::int64_t width = golden.size(-1);
    const std::map<std::int64_t, double> factors = factors_of(output);
    // One row is as near as another to anything.
    if (factors.size() < 2) continue;
    for (const TensorSpec& spec : call.op.schema().tensors) {
      const Tensor* const weights = call.inputs.find(spec.name);
      if (spec.direction != Direction::in || weights == nullptr || !weights->defined() || !is_float(weights->dtype()) ||
          bits(weights->dtype()) < 16 || weights->elements() != golden.elements() / width)
        continue;
      const std::map<std::int64_t, std::int64_t> used = rows_used(factors, *weights);
      if (used.empty()) continue;
      std::vector<double> exact = reference->exact, slack = reference->slack;
      slack.resize(exact.size());
      for (const auto& [row, other] : used) {
        const double times = quant::get(*weights, other) / quant::get(*weights, row);
        for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
          const auto at = static_cast<std::size_t>(i);
          exact[at] *= times, slack[at] = std::fabs(times) * slack[at] + 0x1p-22 * std::fabs(exact[at]);
        }
      }
      GoldenRun run = call.golden;
      put_numbers(run, output.name, exact, slack);
      if (judge(call.op, call.inputs, run, actual, options).outcome != Outcome::pass) continue;
      Explanation found{"weights-of-rows", words_of(spec.name, used)};
      found.outputs.push_back(output.name);
      found.complete = true;
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace dodona::oracle
