// Faults of what accumulators still hold: sums that are not set back to zero between rows. From golden mode's exact numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "oracle/faults/rewritten.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

/// `out 4`: a block has every fourth row, and adds each to what the ones before it left.
Values carried_sums(Site s) {
  Values values;
  for (const auto& [name, tensor] : s.call.golden.outputs) {
    if (!is_float(tensor.dtype()) || bits(tensor.dtype()) < 16 || tensor.rank() < 2 || kept_exactly(s, name, tensor) == nullptr) continue;
    const std::int64_t rows = tensor.elements() / std::max<std::int64_t>(tensor.size(-1), 1);
    for (std::int64_t step = 1; step < rows && step <= 256; step = step < 4 ? step + 1 : 2 * step)
      values.emplace_back(name + " " + std::to_string(step));
  }
  return values;
}
GoldenRun carry_sums(Site s) {
  GoldenRun run = s.call.golden;
  const std::string name = first_of(word(s));
  const Tensor& tensor = *find(s.call.golden.outputs, name);
  const ReferenceOutput& said = *kept_exactly(s, name, tensor);
  std::vector<double> exact = said.exact, slack = said.slack;
  const auto step = static_cast<std::size_t>(std::stoll(rest_of(word(s))) * tensor.size(-1));
  for (std::size_t i = step; i < exact.size(); ++i) {
    exact[i] += exact[i - step];
    slack[i] += slack[i - step] + 0x1p-22 * (std::fabs(said.exact[i]) + std::fabs(exact[i - step]));
  }
  put_numbers(run, name, exact, slack);
  return run;
}
std::string carried_in_words(Site s) {
  const std::string step = rest_of(word(s));
  return first_of(word(s)) + ": sums are not set back to zero: a row begins with what the row " + (step == "1" ? "" : step + " rows ") +
         "before it left";
}

constexpr std::array table{
    Fault{.id = "sums-carried-over",
          .summary = "sums are not set back to zero between rows",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = carried_sums,
          .words = carried_in_words,
          .far = true,
          .rerun = carry_sums},
};

}  // namespace

std::span<const Fault> carried_faults() {
  return table;
}

}  // namespace dodona::oracle
