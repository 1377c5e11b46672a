#include "oracle/faults/softmax_rows.h"

#include <algorithm>
#include <cmath>

#include "core/flaw.h"
#include "oracle/faults/rewritten.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

bool is_logarithm(const std::vector<double>& exact) {
  return std::all_of(exact.begin(), exact.end(), [](double x) { return !(x > 0); });
}

}  // namespace

std::optional<Softmax> softmax_of(const FaultCase& call) {
  if ((call.golden.inner & static_cast<unsigned>(Inner::softmax)) == 0) return std::nullopt;
  for (const TensorSpec& spec : call.op.schema().tensors) {
    const Tensor* const logits = call.inputs.find(spec.name);
    if (spec.role != Role::logits || spec.direction != Direction::in || logits == nullptr || !logits->defined() || logits->rank() != 2)
      continue;
    for (const auto& [name, tensor] : call.golden.outputs)
      if (tensor.shape() == logits->shape() && is_float(tensor.dtype()) &&
          fault_tools::kept_exactly(FaultSite{call}, name, tensor) != nullptr)
        return Softmax{spec.name, name, logits->size(0), logits->size(1), is_logarithm(call.golden.reference.find(name)->exact)};
  }
  return std::nullopt;
}

std::optional<SoftmaxRow> softmax_row(const FaultCase& call, const Softmax& softmax, std::int64_t row) {
  const Tensor& logits = *call.inputs.find(softmax.logits);
  const std::vector<double>& all = call.golden.reference.find(softmax.probs)->exact;
  const auto first = all.begin() + row * softmax.columns;
  std::vector<double> exact(first, first + softmax.columns);
  if (softmax.logarithm)
    for (double& x : exact) x = std::exp(x);
  const auto largest = static_cast<std::size_t>(std::max_element(exact.begin(), exact.end()) - exact.begin());
  if (!(exact[largest] > 0) || !std::isfinite(exact[largest])) return std::nullopt;
  SoftmaxRow found;
  found.sum = 1 / exact[largest];
  // The temperature is what makes a difference of logits one of logarithms.
  const auto logit = [&](std::size_t c) { return quant::get(logits, row * softmax.columns + static_cast<std::int64_t>(c)); };
  const double top = logit(largest);
  double slope = 0, farthest = 0;
  for (std::size_t c = 0; c < exact.size(); ++c)
    if (const double below = top - logit(c); exact[c] > 0 && std::isfinite(below) && below > farthest)
      farthest = below, slope = std::log(exact[largest] / exact[c]) / below;
  for (std::size_t c = 0; c < exact.size(); ++c) {
    found.weights.push_back(exact[c] * found.sum);
    found.scores.push_back(slope * logit(c));
  }
  found.most = slope * top;
  return found;
}

}  // namespace dodona::oracle
