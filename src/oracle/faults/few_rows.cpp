#include "oracle/faults/few_rows.h"

#include <array>

#include "dodona/error.h"
#include "oracle/faults/explain.h"

namespace dodona::oracle {
namespace {

constexpr std::int64_t few = 16, many = 64;

/// What is counted over all rows: a part of it is another call.
bool of_all_rows(const Placed& placed) {
  if (placed.site.spec == nullptr) return false;
  switch (placed.site.spec->role) {
    case Role::positions:
    case Role::indices:
    case Role::page_table:
    case Role::lengths:
    case Role::indptr:
    case Role::expert_ids: return true;
    default: return false;
  }
}

}  // namespace

std::unique_ptr<FewRows> FewRows::of(const FaultCase& call, const NamedTensors& actual, const JudgeOptions& options) {
  for (const std::string& symbol : call.op.schema().properties.rows_independent) {
    if (rows_along(call.op, call.inputs, symbol) < many) continue;
    try {
      std::unique_ptr<FewRows> rows(new FewRows(call, actual, options, {RowRange{symbol, 0, few}}));
      if (rows->verdict_.outcome == Outcome::fail) return rows;
    } catch (const Error&) {
      continue;  // inputs that say something of all rows do not fit some of them
    }
  }
  return nullptr;
}

FewRows::FewRows(const FaultCase& call, const NamedTensors& actual, const JudgeOptions& options, const Window& window)
    : options_(options),
      inputs_(windowed(call.op, call.inputs, window)),
      actual_(windowed(call.op, actual, window)),
      golden_(run_golden(call.op, inputs_, call.exec)),
      verdict_(judge(call.op, inputs_, golden_, actual_, options)),
      call_{call.op, inputs_, golden_, call.exec} {
  for (const Strikes strikes : {Strikes::kernel, Strikes::attribute, Strikes::call, Strikes::input})
    for (Placed& placed : placements(call_, strikes)) placed_.emplace(placed.id(), std::move(placed));
  for (const Fault& fault : composed_faults())
    if (!fault.far)
      for (Placed& placed : placements(fault, call_)) placed_.emplace(placed.id(), std::move(placed));
}

bool FewRows::rule_out(const Placed& placed) const {
  if (placed.fault->strikes == Strikes::output || placed.fault->far || of_all_rows(placed)) return false;
  const auto here = placed_.find(placed.id());
  if (here == placed_.end()) return false;
  const auto explanation = replay(here->second, actual_, verdict_, options_);
  return explanation && !explanation->complete && explanation->outputs.empty() && 2 * explanation->failing > verdict_.failing();
}

}  // namespace dodona::oracle
