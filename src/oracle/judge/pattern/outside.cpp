// Numbers of what is not there: of a token behind the vocabulary, of an expert behind the last.
#include "oracle/judge/pattern.h"
#include "quant/element.h"

namespace dodona::oracle {

std::optional<std::string> outside_of(const OpSchema& schema, const Arguments& inputs, const std::vector<std::int64_t>& failing,
                                      const Tensor& golden, const Tensor& actual) {
  if (is_float(golden.dtype()) || failing.empty()) return std::nullopt;
  for (const TensorSpec& spec : schema.tensors) {
    const Tensor* const tensor = inputs.find(spec.name);
    if ((spec.role != Role::probs && spec.role != Role::logits) || spec.direction != Direction::in || tensor == nullptr ||
        !tensor->defined() || tensor->rank() < 1)
      continue;
    const auto end = static_cast<double>(tensor->size(-1));
    std::vector<std::int64_t> beyond;
    for (const std::int64_t i : failing) {
      if (quant::get(golden, i) < -1 || quant::get(golden, i) >= end) return std::nullopt;
      if (quant::get(actual, i) >= end) beyond.push_back(i);
    }
    if (beyond.empty()) continue;
    return std::to_string(static_cast<std::int64_t>(quant::get(actual, beyond.front()))) + " is outside of " + spec.name + ", which has " +
           std::to_string(tensor->size(-1)) + " columns: " + std::to_string(beyond.size()) +
           (beyond.size() == 1 ? " element, first at " : " elements, first at ") + to_string(index_of(beyond.front(), golden.shape()));
  }
  return std::nullopt;
}

}  // namespace dodona::oracle
