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

// ---- rounded twice

/// `output_q bf16`: codes of numbers that were rounded to 16 bits first.
Values rounded_before(Site s) {
  Values values;
  for (const auto& [name, tensor] : s.call.golden.outputs)
    if (is_float(tensor.dtype()) && bits(tensor.dtype()) == 8 && kept_exactly(s, name, tensor) != nullptr)
      for (const char* const type : {" bf16", " f16"}) values.emplace_back(name + type);
  return values;
}
GoldenRun round_before(Site s) {
  GoldenRun run = s.call.golden;
  const std::string name = first_of(word(s));
  const DType type = *parse_dtype(rest_of(word(s)));
  const ReferenceOutput& said = *kept_exactly(s, name, *find(s.call.golden.outputs, name));
  std::vector<double> exact = said.exact, slack = said.slack;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    // Numbers whose slack reaches over a tie may become either neighbour.
    const double low = quant::round_to(type, said.exact[i] - said.slack[i]), high = quant::round_to(type, said.exact[i] + said.slack[i]);
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    exact[i] = (low + high) / 2, slack[i] = (high - low) / 2;
  }
  put_numbers(run, name, exact, slack);
  return run;
}
std::string rounded_in_words(Site s) {
  return first_of(word(s)) + ": numbers are rounded twice, to " + rest_of(word(s)) + " before they are rounded to the output's fewer bits";
}

constexpr std::array table{
    Fault{.id = "rounded-twice-openly",
          .summary = "numbers are rounded to 16 bits before they are rounded to the output's fewer ones",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = rounded_before,
          .words = rounded_in_words,
          .rerun = round_before},
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
