#include "oracle/faults/faults.h"

#include <algorithm>
#include <cmath>

#include "core/storage.h"
#include "dodona/error.h"
#include "oracle/faults/tables/composed.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

/// A copy to spoil, in the layout that the argument has. (Bytes that hold codes are contiguous: their codes share the copy's memory.)
Tensor writable_copy(const Tensor& tensor) {
  if (tensor.contiguous()) return tensor.clone();
  Tensor result = make_strided(tensor.dtype(), tensor.shape(), tensor.strides());
  copy(tensor, result);
  return result;
}

/// The value of an attribute in a call, of the type that the schema gives it.
AttrValue value_of(const AttrSpec& spec, const Arguments& inputs) {
  const AttrValue* given = inputs.find_attr(spec.name);
  if (given == nullptr) return spec.default_value;
  if (std::holds_alternative<std::int64_t>(*given) && std::holds_alternative<double>(spec.default_value))
    return static_cast<double>(std::get<std::int64_t>(*given));
  return given->index() == spec.default_value.index() ? *given : spec.default_value;
}

std::vector<FaultSite> attribute_sites(const FaultCase& call) {
  std::vector<FaultSite> found;
  for (const AttrSpec& spec : call.op.schema().attrs) {
    if (spec.ignored) continue;
    FaultSite site{call, spec.name};
    site.attr = &spec;
    site.value = value_of(spec, call.inputs);
    found.push_back(std::move(site));
  }
  return found;
}

std::vector<FaultSite> tensor_sites(const FaultCase& call, bool output) {
  std::vector<FaultSite> found;
  for (const TensorSpec& spec : call.op.schema().tensors) {
    if (spec.direction == (output ? Direction::in : Direction::out) || !spec.view_of.empty()) continue;
    const Tensor* tensor = output ? find(call.golden.outputs, spec.name) : call.inputs.find(spec.name);
    if (tensor == nullptr || tensor->elements() == 0) continue;
    FaultSite site{call, spec.name};
    site.spec = &spec;
    if (output) site.reference = call.golden.reference.find(spec.name);
    site.tensor = as_codes(output ? tensor->clone() : *tensor, spec.storage);
    found.push_back(std::move(site));
  }
  return found;
}

std::vector<FaultSite> sites(const FaultCase& call, Strikes strikes) {
  switch (strikes) {
    case Strikes::output: return tensor_sites(call, true);
    case Strikes::input: return tensor_sites(call, false);
    case Strikes::attribute: return attribute_sites(call);
    case Strikes::call: return {FaultSite{call}};
    case Strikes::kernel: break;
  }
  std::vector<FaultSite> found;
  for (const KernelMistake& mistake : call.op.mistakes()) found.push_back(FaultSite{call, std::string(mistake.id)});
  return found;
}

/// The same site once for each variant of the fault that is not what the site has anyway.
std::vector<FaultSite> variants_of(const Fault& fault, const FaultSite& site) {
  if (fault.variants == nullptr) return {site};
  std::vector<FaultSite> found;
  for (const AttrValue& variant : fault.variants(site)) {
    if (site.attr != nullptr && to_string(variant) == to_string(site.value)) continue;
    found.push_back(site);
    found.back().taken = variant;
  }
  return found;
}

}  // namespace

std::string_view name(Strikes strikes) {
  switch (strikes) {
    case Strikes::output: return "output";
    case Strikes::input: return "input";
    case Strikes::attribute: return "attribute";
    case Strikes::call: return "call";
    case Strikes::kernel: return "kernel";
  }
  return "";
}

std::string_view name(Severity severity) {
  return severity == Severity::gross ? "gross" : "fine";
}

std::span<const Fault> kernel_faults() {
  static const std::vector<Fault> declared = [] {
    std::vector<Fault> list;
    for (const auto& op : registry().all())
      for (const KernelMistake& mistake : op->mistakes()) {
        const auto known = std::find_if(list.begin(), list.end(), [&](const Fault& fault) { return fault.id == mistake.id; });
        if (known == list.end())
          list.push_back({mistake.id, mistake.text, Strikes::kernel, mistake.may_hide ? Severity::fine : Severity::gross});
      }
    return list;
  }();
  return declared;
}

std::span<const Fault> faults() {
  static const std::vector<Fault> all = [] {
    std::vector<Fault> list;
    for (const auto part :
         {output_faults(), input_faults(), address_faults(), row_faults(), number_faults(), attribute_faults(), call_faults(),
          head_faults(), inner_faults(), sum_faults(), store_faults(), every_output_faults(), kernel_faults()})
      list.insert(list.end(), part.begin(), part.end());
    return list;
  }();
  return all;
}

std::span<const Fault> composed_faults() {
  static const std::vector<Fault> all = [] {
    std::vector<Fault> list;
    for (const auto part :
         {axis_faults(),    part_faults(),        pass_faults(),        limit_faults(),      word_faults(),    maximum_faults(),
          carried_faults(), zero_point_faults(),  softmax_sum_faults(), tile_store_faults(), stride_faults(),  list_faults(),
          angle_faults(),   shared_head_faults(), hidden_faults(),      order_faults(),      read_on_faults(), scales_together_faults(),
          alike_faults(),   function_faults()})
      list.insert(list.end(), part.begin(), part.end());
    return list;
  }();
  return all;
}

std::string Placed::id() const {
  std::string text(fault->id);
  if (!site.name.empty() && fault->strikes != Strikes::kernel) text += ":" + site.name;
  if (site.taken) text += (site.name.empty() ? ":" : "=") + to_string(*site.taken);
  return text;
}

std::string Placed::text() const {
  if (fault->words != nullptr) return fault->words(site);
  std::string summary(fault->summary);
  switch (fault->strikes) {
    case Strikes::kernel: {
      // Ops may call mistakes of their own alike.
      for (const KernelMistake& mistake : site.call.op.mistakes())
        if (mistake.id == fault->id) return std::string(mistake.text);
      return summary;
    }
    case Strikes::call: return (site.taken ? to_string(*site.taken) + ": " : "") + summary;
    case Strikes::attribute: {
      // A word says enough; of a number it says how one comes to it.
      const bool is_number = std::holds_alternative<double>(site.value) || std::holds_alternative<std::int64_t>(site.value);
      return "computed with " + site.name + "=" + to_string(*site.taken) + " instead of " + to_string(site.value) +
             (is_number ? ": " + summary : "");
    }
    default: return site.name + ": " + summary;
  }
}

namespace {

std::vector<Placed> placed_among(const std::vector<FaultSite>& places, const Fault& fault) {
  std::vector<Placed> found;
  for (const FaultSite& site : places) {
    if (fault.strikes == Strikes::kernel ? fault.id != site.name : !fault.applies(site)) continue;
    for (FaultSite& variant : variants_of(fault, site)) found.push_back({&fault, std::move(variant)});
  }
  return found;
}

}  // namespace

std::vector<FaultSite> input_sites(const FaultCase& call) {
  return tensor_sites(call, false);
}

std::vector<Placed> placements(const Fault& fault, const FaultCase& call) {
  return placed_among(sites(call, fault.strikes), fault);
}

std::vector<Placed> placements(const FaultCase& call, Strikes strikes) {
  const std::vector<FaultSite> places = sites(call, strikes);
  std::vector<Placed> found;
  for (const Fault& fault : faults())
    if (fault.strikes == strikes)
      for (Placed& placed : placed_among(places, fault)) found.push_back(std::move(placed));
  return found;
}

std::unique_ptr<const Flaw> flaw_of(const Placed& placed) {
  if (placed.fault->flaw == nullptr) return nullptr;
  auto flaw = std::make_unique<Flaw>();
  placed.fault->flaw(placed.site, *flaw);
  return flaw;
}

const Op& op_with(const Placed& placed) {
  return placed.fault->instead != nullptr ? placed.fault->instead(placed.site) : placed.site.call.op;
}

Arguments inputs_with(const Placed& placed) {
  const auto& [fault, site] = placed;
  Arguments inputs = site.call.inputs;
  if (fault->strikes == Strikes::input) {
    const Tensor changed = writable_copy(*site.call.inputs.find(site.name));
    fault->spoil(site, as_codes(changed, site.spec->storage));
    inputs.set(site.name, changed);
  } else if (fault->strikes == Strikes::attribute) {
    inputs.set_attr(site.name, *site.taken);
  } else if (fault->recall != nullptr) {
    fault->recall(site, inputs);
  }
  return inputs;
}

namespace {

/// Where the number lies within its slack of one of the type, cutting gives that one or its neighbour.
void leave_cuts_open(const Placed& placed, const Tensor& written, ReferenceOutput& record) {
  const DType type = written.dtype();
  for (std::int64_t i = 0; i < written.elements(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double exact = placed.site.reference->exact[at], slack = placed.site.reference->slack[at];
    if (!std::isfinite(exact) || exact == 0 || std::fabs(exact) > quant::max_finite(type)) continue;
    const double nearest = quant::round_to(type, exact);
    if (std::fabs(exact - nearest) > slack) continue;
    const bool down = (exact > 0) == (placed.fault->cuts < 0);
    const double neighbour = down ? quant::next_down(type, nearest) : quant::next_up(type, nearest);
    if (!std::isfinite(neighbour)) continue;
    record.exact[at] = nearest + (neighbour - nearest) / 2;
    record.slack[at] = std::fabs(neighbour - nearest) / 2 + slack;
  }
}

GoldenRun golden_with_written(const Placed& placed) {
  const FaultSite& site = placed.site;
  GoldenRun golden{inject(placed), site.call.golden.reference};
  const Tensor written = as_codes(*find(golden.outputs, site.name), site.spec->storage);
  if (site.reference == nullptr || site.reference->exact.size() != static_cast<std::size_t>(written.elements())) return golden;
  ReferenceOutput& record = golden.reference.output(site.name, written.elements());
  for (std::int64_t i = 0; i < written.elements(); ++i) {
    if (quant::get_bits(written, i) == quant::get_bits(site.tensor, i)) continue;
    const auto at = static_cast<std::size_t>(i);
    record.exact[at] = quant::get(written, i);
    if (!std::isfinite(record.exact[at])) record.slack[at] = 0;
  }
  if (placed.fault->cuts != 0) leave_cuts_open(placed, written, record);
  return golden;
}

/// Elements that only what lies beyond an operand's end made NaN.
void leave_unknown_open(GoldenRun& run, const GoldenRun& right) {
  for (const auto& [name, tensor] : run.outputs) {
    const Tensor* const before = find(right.outputs, name);
    if (!is_float(tensor.dtype()) || before == nullptr || !(before->shape() == tensor.shape())) continue;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      if (!std::isnan(quant::get(tensor, i)) || std::isnan(quant::get(*before, i))) continue;
      std::vector<std::uint8_t>& open = run.reference.output(name, tensor.elements()).unspecified;
      open.resize(static_cast<std::size_t>(tensor.elements()));
      open[static_cast<std::size_t>(i)] = 1;
    }
  }
}

}  // namespace

GoldenRun run_with(const Placed& placed, const Arguments& inputs) {
  const FaultCase& call = placed.site.call;
  if (placed.fault->rerun != nullptr) return placed.fault->rerun(placed.site);
  if (const auto flaw = flaw_of(placed)) {
    Exec flawed = call.exec;
    flawed.flaw = flaw.get();
    return run_golden(call.op, inputs, flawed);
  }
  if (placed.fault->strikes == Strikes::output) return placed.fault->undo != nullptr ? call.golden : golden_with_written(placed);
  if (placed.fault->strikes != Strikes::kernel) {
    GoldenRun run = run_golden(op_with(placed), inputs, call.exec);
    if (placed.fault->reads_beyond) leave_unknown_open(run, call.golden);
    return run;
  }
  Exec exec = call.exec;
  exec.mode = Mode::golden;
  Arguments arguments = runnable(call.op, call.inputs);
  GoldenRun mistaken;
  call.op.mistaken_reference(placed.fault->id, arguments, exec, mistaken.reference);
  mistaken.outputs = outputs_of(call.op, arguments);
  return mistaken;
}

NamedTensors inject(const Placed& placed) {
  const auto& [fault, site] = placed;
  if (fault->strikes != Strikes::output) {
    NamedTensors outputs = run_with(placed, inputs_with(placed)).outputs;
    if (fault->rewrite != nullptr) fault->rewrite(site, outputs, false);
    return outputs;
  }
  NamedTensors outputs = site.call.golden.outputs;
  for (auto& [name, tensor] : outputs) {
    if (name != site.name) continue;
    tensor = tensor.clone();
    fault->spoil(site, as_codes(tensor, site.spec->storage));
  }
  return outputs;
}

NamedTensors restored(const Placed& placed, const NamedTensors& actual) {
  const auto& [fault, site] = placed;
  NamedTensors outputs = actual;
  if (fault->rewrite != nullptr) fault->rewrite(site, outputs, true);
  if (fault->undo == nullptr) return outputs;
  for (auto& [name, tensor] : outputs) {
    if (name != site.name) continue;
    FaultSite written = site;
    written.tensor = as_codes(tensor.clone(), site.spec->storage);
    tensor = tensor.clone();
    fault->undo(written, as_codes(tensor, site.spec->storage));
  }
  return outputs;
}

}  // namespace dodona::oracle
