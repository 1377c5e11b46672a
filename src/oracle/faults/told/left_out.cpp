#include "oracle/faults/told/left_out.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "dodona/error.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

using Experts = std::vector<std::int64_t>;

/// The weights of the first product, a matrix for each expert.
const TensorSpec* weights_of_experts(const FaultCase& call) {
  constexpr std::int64_t most = 64;
  for (const TensorSpec& spec : call.op.schema().tensors)
    if (const Tensor* const tensor = call.inputs.find(spec.name);
        spec.direction == Direction::in && tensor != nullptr && tensor->defined() && tensor->rank() == 3 && tensor->contiguous() &&
        spec.role != Role::scale && !spec.storage.scales && tensor->size(0) >= 2 && tensor->size(0) <= most)
      return &spec;
  return nullptr;
}

/// How many elements fail beside a kernel that has no weights of these experts.
std::int64_t failing_without(const FaultCase& call, const std::string& weights, const Experts& experts, const NamedTensors& actual,
                             const JudgeOptions& options) {
  const Tensor& before = *call.inputs.find(weights);
  const Tensor after = before.clone();
  const std::int64_t matrix = after.elements() / after.size(0);
  for (const std::int64_t e : experts)
    for (std::int64_t i = e * matrix; i < (e + 1) * matrix; ++i) quant::set_bits(after, i, 0);
  Arguments inputs = call.inputs;
  inputs.set(weights, after);
  return judge(call.op, inputs, run_golden(call.op, inputs, call.exec), actual, options).failing();
}

}  // namespace

std::optional<Explanation> experts_left_out(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                            const JudgeOptions& options, const std::function<bool()>& time_is_up) {
  const TensorSpec* const weights = call.op.info().category == Category::moe ? weights_of_experts(call) : nullptr;
  if (weights == nullptr) return std::nullopt;
  const std::int64_t count = call.inputs.find(weights->name)->size(0);
  Experts gone;
  try {
    for (std::int64_t e = 0; e < count; ++e) {
      if (time_is_up()) return std::nullopt;
      if (failing_without(call, weights->name, {e}, actual, options) < verdict.failing()) gone.push_back(e);
    }
    const auto all = static_cast<std::size_t>(count);
    if (gone.empty() || gone.size() == all || failing_without(call, weights->name, gone, actual, options) > 0) return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
  std::string list;
  for (const std::int64_t e : gone) list += (list.empty() ? "" : ", ") + std::to_string(e);
  Explanation explanation{"experts-left-out",
                          weights->name + (gone.size() == 1 ? ": expert " : ": experts ") + list +
                              (gone.size() == 1 ? " adds nothing: its product is" : " add nothing: their products are") +
                              " not made, or made without scales or weights"};
  for (const OutputVerdict& output : verdict.outputs)
    if (output.failing > 0) explanation.outputs.push_back(output.name);
  explanation.complete = true;
  return explanation;
}

}  // namespace dodona::oracle
