#include "oracle/trust/audit.h"

#include <algorithm>

#include "core/storage.h"
#include "dodona/error.h"
#include "oracle/cases/generate.h"
#include "oracle/trust/customary.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

/// Whether the actual outputs fit golden's at all.
bool comparable(const NamedTensors& golden, const NamedTensors& actual) {
  return std::all_of(golden.begin(), golden.end(), [&](const auto& entry) {
    const Tensor* other = find(actual, entry.first);
    return other != nullptr && other->dtype() == entry.second.dtype() && other->shape() == entry.second.shape();
  });
}

/// Whether some element that the contract speaks of has other bits.
bool changed(const Op& op, const GoldenRun& golden, const NamedTensors& actual) {
  for (const auto& [name, tensor] : golden.outputs) {
    const Storage& storage = op.schema().find_tensor(name)->storage;
    const Tensor expected = as_codes(tensor, storage), other = as_codes(*find(actual, name), storage);
    const ReferenceOutput* reference = golden.reference.find(name);
    const bool open = reference != nullptr && !reference->unspecified.empty();
    for (std::int64_t i = 0; i < expected.elements(); ++i)
      if (quant::get_bits(expected, i) != quant::get_bits(other, i) && (!open || reference->unspecified[static_cast<std::size_t>(i)] == 0))
        return true;
  }
  return false;
}

Injection injected(const Placed& placed, const std::string& line) {
  Injection injection{placed.fault, placed.site.name, line};
  injection.may_tie = placed.fault->permutes && placed.site.spec != nullptr && placed.site.spec->judge == Judge::top_k;
  NamedTensors actual;
  try {
    actual = inject(placed);
  } catch (const Error&) {
    injection.caught = Caught::refused;
    return injection;
  }
  const FaultCase& call = placed.site.call;
  if (!comparable(call.golden.outputs, actual)) {
    injection.caught = Caught::refused;
  } else if (changed(call.op, call.golden, actual)) {
    const Verdict verdict = judge(call.op, call.inputs, call.golden, actual, {Mode::golden, call.exec});
    injection.caught = verdict.outcome == Outcome::fail ? Caught::by_judge : Caught::within;
    injection.customary = !customary_pass(call.op, call.golden, actual);
    for (const OutputVerdict& output : verdict.outputs)
      if (output.failing > 0 && injection.pattern.empty()) injection.pattern = output.name + ": " + output.pattern;
  }
  return injection;
}

}  // namespace

std::string_view name(Caught caught) {
  switch (caught) {
    case Caught::by_judge: return "caught";
    case Caught::within: return "within the contract";
    case Caught::no_change: return "no change";
    case Caught::refused: return "refused";
  }
  return "";
}

int Audit::injected() const {
  return static_cast<int>(std::count_if(injections.begin(), injections.end(), [](const Injection& i) { return i.counts(); }));
}
int Audit::caught() const {
  return static_cast<int>(
      std::count_if(injections.begin(), injections.end(), [](const Injection& i) { return i.caught == Caught::by_judge; }));
}
int Audit::within() const {
  return injected() - caught() - vacuous();
}
int Audit::customary() const {
  return static_cast<int>(
      std::count_if(injections.begin(), injections.end(), [](const Injection& i) { return i.counts() && i.customary; }));
}
int Audit::vacuous() const {
  return static_cast<int>(std::count_if(injections.begin(), injections.end(), [](const Injection& i) { return i.vacuous(); }));
}

Audit audit_case(const CaseLine& line, const Exec& exec, const std::function<bool(const Fault&, const Audit&)>& wanted) {
  const Op& op = registry().at(line.op);
  const Arguments inputs = generate(line);
  const GoldenRun golden = run_golden(op, inputs, exec);
  const FaultCase call{op, inputs, golden, exec};
  Audit audit;
  for (const Strikes strikes : {Strikes::output, Strikes::input, Strikes::attribute, Strikes::call, Strikes::kernel})
    for (const Placed& placed : placements(call, strikes))
      if (!wanted || wanted(*placed.fault, audit)) audit.injections.push_back(injected(placed, to_string(line)));
  return audit;
}

Audit audit_op(const Op& op, const Exec& exec, const std::function<void(std::size_t, std::size_t, const std::string&)>& progress) {
  Audit audit;
  for (std::size_t i = 0; i < op.cases().size(); ++i) {
    const CaseLine line = parse_case_line(std::string(op.name()) + " " + op.cases()[i]);
    if (progress) progress(i, op.cases().size(), to_string(line));
    const Audit one = audit_case(line, exec);
    audit.injections.insert(audit.injections.end(), one.injections.begin(), one.injections.end());
  }
  for (Injection& injection : audit.injections)
    injection.caught_elsewhere = injection.fault->strikes == Strikes::kernel && injection.caught == Caught::within &&
                                 std::any_of(audit.injections.begin(), audit.injections.end(), [&](const Injection& other) {
                                   return other.fault == injection.fault && other.caught == Caught::by_judge;
                                 });
  return audit;
}

}  // namespace dodona::oracle
