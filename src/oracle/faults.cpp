#include "oracle/faults.h"

#include "dodona/error.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

/// Packed codes in bytes as elements of their own; the memory is the same.
Tensor as_elements(const Tensor& tensor, const ReferenceOutput* reference) {
  if (reference == nullptr || !reference->code) return tensor;
  Dims shape = tensor.shape();
  if (shape.rank() > 0) shape[shape.rank() - 1] *= bits(tensor.dtype()) / bits(*reference->code);
  return {tensor.owner(), tensor.data(), *reference->code, shape, contiguous_strides(shape), tensor.writable()};
}

const Tensor* find(const NamedTensors& tensors, std::string_view name) {
  for (const auto& [key, tensor] : tensors)
    if (key == name) return &tensor;
  return nullptr;
}

/// A copy to spoil, in the layout that the argument has.
Tensor writable_copy(const Tensor& tensor) {
  if (tensor.contiguous()) return tensor.clone();
  Tensor result = make_strided(tensor.dtype(), tensor.shape(), tensor.strides());
  copy(tensor, result);
  return result;
}

}  // namespace

std::string_view name(Strikes strikes) {
  switch (strikes) {
    case Strikes::output: return "output";
    case Strikes::input: return "input";
    case Strikes::attribute: return "attribute";
  }
  return "";
}

std::string_view name(Severity severity) {
  return severity == Severity::gross ? "gross" : "fine";
}

std::span<const Fault> faults() {
  static const std::vector<Fault> all = [] {
    std::vector<Fault> list;
    for (const auto part : {output_faults(), input_faults(), attribute_faults()}) list.insert(list.end(), part.begin(), part.end());
    return list;
  }();
  return all;
}

std::vector<FaultSite> sites(const FaultCase& call, Strikes strikes) {
  std::vector<FaultSite> found;
  if (strikes == Strikes::attribute) {
    for (const AttrSpec& spec : call.op.schema().attrs) {
      if (spec.ignored) continue;
      const AttrValue* given = call.inputs.find_attr(spec.name);
      FaultSite site{call, spec.name};
      site.attr = &spec;
      site.value = given != nullptr && given->index() == spec.default_value.index() ? *given : spec.default_value;
      if (given != nullptr && std::holds_alternative<std::int64_t>(*given) && std::holds_alternative<double>(spec.default_value))
        site.value = static_cast<double>(std::get<std::int64_t>(*given));
      found.push_back(std::move(site));
    }
    return found;
  }
  const bool output = strikes == Strikes::output;
  for (const TensorSpec& spec : call.op.schema().tensors) {
    if (spec.direction == (output ? Direction::in : Direction::out) || !spec.view_of.empty()) continue;
    const Tensor* tensor = output ? find(call.golden.outputs, spec.name) : call.inputs.find(spec.name);
    if (tensor == nullptr || tensor->elements() == 0) continue;
    FaultSite site{call, spec.name};
    site.spec = &spec;
    if (output) site.reference = call.golden.reference.find(spec.name);
    site.tensor = as_elements(output ? tensor->clone() : *tensor, site.reference);
    found.push_back(std::move(site));
  }
  return found;
}

NamedTensors inject(const Fault& fault, const FaultSite& site) {
  const Op& op = site.call.op;
  if (fault.strikes == Strikes::output) {
    NamedTensors outputs = site.call.golden.outputs;
    for (auto& [name, tensor] : outputs) {
      if (name != site.name) continue;
      tensor = tensor.clone();
      fault.spoil(site, as_elements(tensor, site.reference));
    }
    return outputs;
  }
  Arguments inputs = site.call.inputs;
  if (fault.strikes == Strikes::input) {
    const Tensor changed = writable_copy(site.tensor);
    fault.spoil(site, changed);
    inputs.set(site.name, changed);
  } else {
    inputs.set_attr(site.name, fault.replace(site));
  }
  Exec exec = site.call.exec;
  exec.mode = Mode::golden;
  Arguments arguments = runnable(op, inputs);
  op.run(arguments, exec);
  return outputs_of(op, arguments);
}

}  // namespace dodona::oracle
