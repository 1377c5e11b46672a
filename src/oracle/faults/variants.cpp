#include "oracle/faults/variants.h"

#include <algorithm>
#include <string>
#include <vector>

#include "dodona/error.h"
#include "oracle/cases/make_case.h"
#include "oracle/faults/faults.h"

namespace dodona::oracle {
namespace {

/// Of the library, what is documented somewhere; and what ops declare.
std::vector<Placed> variants_of(const FaultCase& call) {
  std::vector<Placed> found;
  for (const Strikes strikes : {Strikes::output, Strikes::call, Strikes::kernel})
    for (Placed& placed : placements(call, strikes))
      if (placed.fault->variant || strikes == Strikes::kernel) found.push_back(std::move(placed));
  return found;
}

GoldenRun with(const std::string& id, const FaultCase& call) {
  std::string known;
  for (const Placed& placed : variants_of(call)) {
    if (placed.id() == id) return run_with(placed, call.inputs);
    known += (known.empty() ? "" : ", ") + placed.id();
  }
  throw Error(ErrorCode::bad_option, std::string(call.op.name()), "--variant",
              "must be one that this call has" + (known.empty() ? ", which are none" : ": " + known) + "; got '" + id + "'");
}

}  // namespace

bool has_variants(const Case& c) {
  return !c.line.empty() && !parse_case_line(c.line).variants.empty();
}

GoldenRun run_variant(const Case& c, const Exec& exec) {
  GoldenRun golden = run_golden(*c.op, c.inputs, exec);
  if (c.line.empty()) return golden;
  for (const std::string& id : parse_case_line(c.line).variants) golden = with(id, {*c.op, c.inputs, golden, exec});
  return golden;
}

Case make_variant_case(const CaseLine& line, const Exec& exec, bool compact) {
  Case c = make_case(line, exec, compact);
  if (line.variants.empty()) return c;
  if (compact) refuse_variants(line, "a compact case");
  const GoldenRun golden = run_variant(c, exec);
  c.outputs = golden.outputs;
  c.budgets.clear();
  for (const auto& [output, tensor] : c.outputs)
    if (const ReferenceOutput* const budget = golden.reference.find(output))
      add_budget(*c.op->schema().find_tensor(output), tensor, *budget, c.budgets);
  c.digests = digests_of(c.inputs, c.outputs);
  return c;
}

}  // namespace dodona::oracle
