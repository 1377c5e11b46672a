// Golden mode's answer with other numbers, for faults that are told from its exact ones.
#pragma once

#include <string>
#include <vector>

#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle::fault_tools {

/// Outputs whose exact numbers golden mode keeps.
inline const ReferenceOutput* kept_exactly(const FaultSite& s, const std::string& name, const Tensor& tensor) {
  const ReferenceOutput* const said = s.call.golden.reference.find(name);
  const auto count = static_cast<std::size_t>(tensor.elements());
  return said != nullptr && said->exact.size() == count && said->slack.size() == count && tensor.elements() <= most_elements ? said
                                                                                                                             : nullptr;
}
/// The answer with other numbers. What they may be off is what the right ones may, for their size.
inline void put_numbers(GoldenRun& run, const std::string& name, const std::vector<double>& exact, const std::vector<double>& slack) {
  ReferenceOutput& record = run.reference.output(name, static_cast<std::int64_t>(exact.size()));
  for (auto& [output, tensor] : run.outputs) {
    if (output != name) continue;
    tensor = tensor.clone();
    for (std::size_t i = 0; i < exact.size(); ++i) quant::set(tensor, static_cast<std::int64_t>(i), exact[i]);
  }
  record.exact = exact;
  record.slack = slack;
}

/// What lies beyond an operand's end nobody knows: of what is another number with another one there nothing is asked.
inline void leave_differences_open(GoldenRun& run, const GoldenRun& other) {
  for (const auto& [name, tensor] : run.outputs) {
    const Tensor* const there = find(other.outputs, name);
    if (there == nullptr || !(there->shape() == tensor.shape())) continue;
    std::vector<std::uint8_t>& unspecified = run.reference.output(name, tensor.elements()).unspecified;
    unspecified.resize(static_cast<std::size_t>(tensor.elements()));
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      if (quant::get_bits(tensor, i) != quant::get_bits(*there, i)) unspecified[static_cast<std::size_t>(i)] = 1;
  }
}

}  // namespace dodona::oracle::fault_tools
