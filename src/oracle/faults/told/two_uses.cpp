#include "oracle/faults/told/two_uses.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "dodona/error.h"
#include "oracle/faults/rewritten.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

/// What each row of `mistaken` has to be multiplied with to be the given one; nothing where one factor does not do.
std::optional<std::vector<double>> factors_of_rows(const Tensor& mistaken, const Tensor& given, double ulps) {
  const Rows rows(mistaken);
  std::vector<double> factors;
  for (std::int64_t r = 0; r < rows.count; ++r) {
    // Of the largest number the quotient is known best.
    std::int64_t largest = 0;
    for (std::int64_t c = 1; c < rows.width; ++c)
      if (std::fabs(quant::get(mistaken, rows.at(r, c))) > std::fabs(quant::get(mistaken, rows.at(r, largest)))) largest = c;
    const double top = quant::get(mistaken, rows.at(r, largest)), factor = quant::get(given, rows.at(r, largest)) / top;
    if (top == 0 || !std::isfinite(factor) || factor <= 0) return std::nullopt;
    for (std::int64_t c = 0; c < rows.width; ++c) {
      const double x = quant::get(given, rows.at(r, c)), expected = factor * quant::get(mistaken, rows.at(r, c));
      const double room = ulps * quant::ulp(given.dtype(), std::fmax(std::fabs(x), std::fabs(expected)));
      if (!(std::fabs(x - expected) <= room)) return std::nullopt;
    }
    factors.push_back(factor);
  }
  return factors;
}

std::optional<Explanation> with_factors(const Placed& placed, const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                        const JudgeOptions& options) {
  GoldenRun run = run_with(placed, inputs_with(placed));
  const GoldenRun mistaken = run;
  bool any = false;
  for (const OutputVerdict& output : verdict.outputs) {
    const Tensor* const right = find(call.golden.outputs, output.name);
    if (output.failing == 0) {
      // What is right was made before, or of other numbers.
      if (const ReferenceOutput* const said = call.golden.reference.find(output.name))
        run.reference.output(output.name, right->elements()) = *said;
      for (auto& [name, tensor] : run.outputs)
        if (name == output.name) tensor = *right;
      continue;
    }
    const Tensor &given = *find(actual, output.name), &theirs = *find(mistaken.outputs, output.name);
    const ReferenceOutput* const said = mistaken.reference.find(output.name);
    if (!is_float(given.dtype()) || bits(given.dtype()) <= 8 || given.rank() < 2 || !(given.shape() == theirs.shape()) || said == nullptr ||
        said->exact.size() != static_cast<std::size_t>(given.elements()) || given.elements() > most_elements)
      return std::nullopt;
    constexpr double ulps = 4;
    const auto factors = factors_of_rows(theirs, given, ulps);
    if (!factors || std::all_of(factors->begin(), factors->end(), [](double x) { return std::fabs(x - 1) < 0.004; })) return std::nullopt;
    std::vector<double> exact = said->exact, slack = said->slack;
    const std::int64_t width = given.size(-1);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const double factor = (*factors)[i / static_cast<std::size_t>(width)];
      exact[i] *= factor;
      slack[i] = slack[i] * factor + 4 * quant::ulp(given.dtype(), exact[i]);
    }
    put_numbers(run, output.name, exact, slack);
    any = true;
  }
  if (!any || judge(call.op, call.inputs, run, actual, options).outcome != Outcome::pass) return std::nullopt;
  Explanation found{"one-of-two-uses:" + placed.id(),
                    placed.text() + ", where numbers are multiplied; their mean is taken of the right ones"};
  for (const OutputVerdict& output : verdict.outputs)
    if (output.failing > 0) found.outputs.push_back(output.name);
  found.complete = true;
  return found;
}

}  // namespace

std::optional<Explanation> one_of_two_uses(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                           const JudgeOptions& options, const std::function<bool()>& time_is_up) {
  if (call.op.info().category != Category::normalization) return std::nullopt;
  constexpr double many_ulps = 64;
  // Rows that are the right ones but for a factor of their own say nothing of what is multiplied.
  for (const OutputVerdict& output : verdict.outputs)
    if (output.failing > 0 && find(actual, output.name)->rank() >= 2 &&
        factors_of_rows(*find(call.golden.outputs, output.name), *find(actual, output.name), many_ulps))
      return std::nullopt;
  for (const auto part : {input_faults(), address_faults(), row_faults(), number_faults(), axis_faults(), part_faults()})
    for (const Fault& fault : part) {
      if (fault.strikes != Strikes::input) continue;
      for (const Placed& placed : placements(fault, call)) {
        if (time_is_up()) return std::nullopt;
        if (placed.site.spec == nullptr || placed.site.spec->role != Role::values) continue;
        try {
          if (auto found = with_factors(placed, call, actual, verdict, options)) return found;
        } catch (const Error&) {
          continue;
        }
      }
    }
  return std::nullopt;
}

}  // namespace dodona::oracle
