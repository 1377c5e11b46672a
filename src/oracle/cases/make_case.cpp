#include "oracle/cases/make_case.h"

#include <algorithm>
#include <cstring>

#include "core/storage.h"
#include "dodona/error.h"
#include "dodona/version.h"
#include "io/json.h"
#include "io/sha256.h"
#include "oracle/cases/edge_limit.h"
#include "oracle/cases/generate.h"

namespace dodona::oracle {
namespace {

/// The plan as JSON: name, role, dtype, shape and bound of each input. Together with seed and distribution it rebuilds them anywhere.
std::string plan_text(const CaseLine& line) {
  io::Json list = io::Json::array();
  for (const InputPlan& input : plan_inputs(line)) {
    io::Json entry{{"name", input.name},
                   {"role", std::string(name(input.role))},
                   {"dtype", std::string(name(input.dtype))},
                   {"shape", std::vector<std::int64_t>(input.shape.begin(), input.shape.end())}};
    if (input.bound > 0) entry["bound"] = input.bound;
    if (input.kin) entry["kin"] = true;
    const Op& op = registry().at(line.op);
    const double edge_limit = edge_limit_of(op, *op.schema().find_tensor(input.name), input.dtype);
    if (edge_limit > 0 && line.dist == "edge") entry["edge_limit"] = edge_limit;
    for (const Special special : input.specials) entry["special"].push_back(std::string(name(special)));
    if (input.slots && !input.slots->table.empty()) entry["slots"]["table"] = input.slots->table;
    if (input.slots && !input.slots->lengths.empty()) entry["slots"]["lengths"] = input.slots->lengths;
    if (!input.part.empty()) entry["part"] = input.part;
    list.push_back(entry);
  }
  return io::json_text({{"seed", line.seed}, {"dist", line.dist}, {"tensors", list}});
}

Tensor doubles(const std::vector<double>& values, const Dims& shape) {
  Tensor tensor(DType::f64, shape);
  if (!values.empty()) std::memcpy(tensor.data(), values.data(), values.size() * sizeof(double));
  return tensor;
}

/// The case of a line: its names, its inputs and how they are made.
Case case_of(const CaseLine& line, int threads) {
  Case c;
  c.op = &registry().at(line.op);
  c.line = to_string(line);
  c.name = c.line;
  c.contract_version = c.op->contract_version();
  c.input_plan = plan_text(line);
  c.inputs = generate(line, threads);
  return c;
}

}  // namespace

/// An output that leaves nothing open needs no budget beside its golden bits.
void add_budget(const TensorSpec& spec, const Tensor& golden, const ReferenceOutput& reference, NamedTensors& budgets) {
  const Dims shape = as_codes(golden, spec.storage).shape();
  const bool some_slack = std::any_of(reference.slack.begin(), reference.slack.end(), [](double slack) { return slack != 0; });
  if (spec.judge != Judge::exact && some_slack) {
    budgets.emplace_back("exact." + spec.name, doubles(reference.exact, shape));
    budgets.emplace_back("slack." + spec.name, doubles(reference.slack, shape));
  }
  if (std::find(reference.unspecified.begin(), reference.unspecified.end(), 1) == reference.unspecified.end()) return;
  Tensor open(DType::boolean, shape);
  std::copy(reference.unspecified.begin(), reference.unspecified.end(), open.as<std::uint8_t>());
  budgets.emplace_back("open." + spec.name, open);
}

std::map<std::string, std::string> digests_of(const Arguments& inputs, const NamedTensors& outputs) {
  std::map<std::string, std::string> digests;
  for (const auto& [argument, tensor] : inputs.tensors) digests["in." + argument] = io::to_hex(io::tensor_digest(tensor));
  for (const auto& [output, tensor] : outputs) digests["out." + output] = io::to_hex(io::tensor_digest(tensor));
  return digests;
}

Case make_case(const CaseLine& line, const Exec& exec, bool compact) {
  Case c = case_of(line, exec.threads);
  c.compact = compact;
  c.match = "golden";
  c.provenance = io::json_text({{"kind", "golden"}, {"dodona", std::string(version())}});
  Exec golden = exec;
  golden.mode = Mode::golden;
  Arguments arguments = runnable(*c.op, c.inputs);
  if (compact) {
    c.op->run(arguments, golden);
  } else {
    Reference reference;
    c.op->reference(arguments, golden, reference);
    for (const auto& [output, tensor] : outputs_of(*c.op, arguments))
      if (const ReferenceOutput* budget = reference.find(output))
        add_budget(*c.op->schema().find_tensor(output), tensor, *budget, c.budgets);
  }
  c.outputs = outputs_of(*c.op, arguments);
  c.digests = digests_of(c.inputs, c.outputs);
  return c;
}

Case recorded_case(const CaseLine& line, const Window& window, int threads) {
  Case c = case_of(line, threads);
  c.compact = true;
  c.match = "bit-exact";
  c.digests = digests_of(c.inputs, {});
  c.window = window;
  c.inputs = windowed(*c.op, c.inputs, window);
  return c;
}

void complete(Case& c, const Exec& exec) {
  if (!c.compact || !c.outputs.empty()) return;
  refuse_variants(parse_case_line(c.line), "a compact case");
  Exec golden = exec;
  golden.mode = Mode::golden;
  Arguments arguments = runnable(*c.op, c.inputs);
  c.op->run(arguments, golden);
  NamedTensors outputs = outputs_of(*c.op, arguments);
  const auto digests = digests_of({}, outputs);
  for (const auto& [stored, digest] : digests) {
    const auto found = c.digests.find(stored);
    if (found != c.digests.end() && found->second == digest) continue;
    const bool changed = c.contract_version != c.op->contract_version();
    throw Error(ErrorCode::bad_file, "", c.path,
                changed ? "was made under version " + std::to_string(c.contract_version) + " of the contract of " +
                              std::string(c.op->name()) + ", which is now at version " + std::to_string(c.op->contract_version()) + ": " +
                              stored + " has other bits; make the case anew"
                        : "has a digest of " + stored + " that golden mode does not give: the file was changed, or golden mode was");
  }
  c.outputs = std::move(outputs);
}

}  // namespace dodona::oracle
