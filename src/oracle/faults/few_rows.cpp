#include "oracle/faults/few_rows.h"

#include <algorithm>
#include <array>
#include <set>

#include "dodona/error.h"
#include "oracle/faults/explain.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

/// Of so many rows so many.
std::int64_t few_of(std::int64_t rows) {
  constexpr std::int64_t few = 16, fewer = 4;
  return rows >= 2 * few ? few : rows >= 2 * fewer ? fewer : rows >= 2 ? 1 : 0;
}

/// What rows of the outputs are counted by: sizes that the op calls independent, and others, of which golden mode's own answer says it.
std::vector<std::string> counted_by(const FaultCase& call) {
  std::vector<std::string> symbols = call.op.schema().properties.rows_independent;
  for (const auto& [name, tensor] : call.golden.outputs) {
    const auto dims = dims_of(call.op.schema().find_tensor(name)->shape, tensor.rank());
    if (!dims.empty() && std::find(symbols.begin(), symbols.end(), dims.front()) == symbols.end()) symbols.push_back(dims.front());
  }
  return symbols;
}
bool same_bits(const NamedTensors& a, const NamedTensors& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           if (x.second.dtype() != y.second.dtype() || !(x.second.shape() == y.second.shape())) return false;
           for (std::int64_t i = 0; i < x.second.elements(); ++i)
             if (quant::get_bits(x.second, i) != quant::get_bits(y.second, i)) return false;
           return true;
         });
}

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

/// Where the first of the rows lies that fail, in steps of `few`.
std::int64_t first_failing(const Op& op, const Verdict& verdict, const std::string& symbol, std::int64_t rows, std::int64_t few) {
  std::int64_t first = rows;
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.failing == 0 || output.detail == nullptr) continue;
    const Dims& shape = output.detail->golden.shape();
    const auto dims = dims_of(op.schema().find_tensor(output.name)->shape, shape.rank());
    std::int64_t below = 1;
    for (int d = shape.rank() - 1; d >= 0; below *= shape[d--])
      if (static_cast<std::size_t>(d) < dims.size() && dims[static_cast<std::size_t>(d)] == symbol)
        for (const std::int64_t i : output.detail->failing) first = std::min(first, i / below % shape[d]);
  }
  return first < rows ? first / few * few : 0;
}

/// Whether an input's rows lie side by side, so that where a number lies depends on how many there are: a kernel that looks for it
/// elsewhere finds another one in fewer rows.
bool rows_lie_side_by_side(const Op& op, const Arguments& inputs, const std::string& symbol) {
  const auto& tensors = op.schema().tensors;
  return std::any_of(tensors.begin(), tensors.end(), [&](const TensorSpec& spec) {
    const Tensor* const tensor = inputs.find(spec.name);
    if (tensor == nullptr || !tensor->defined() || tensor->rank() < 2) return false;
    const auto dims = dims_of(spec.shape, tensor->rank());
    for (int d = 0; d + 1 < tensor->rank() && static_cast<int>(dims.size()) == tensor->rank(); ++d)
      if (dims[static_cast<std::size_t>(d)] == symbol && tensor->size(-1) > 1 && tensor->stride(d) < tensor->stride(-1)) return true;
    return false;
  });
}

bool same_shapes(const Op& op, const Arguments& a, const Arguments& b) {
  const auto& tensors = op.schema().tensors;
  return std::all_of(tensors.begin(), tensors.end(), [&](const TensorSpec& spec) {
    const Tensor *const x = a.find(spec.name), *const y = b.find(spec.name);
    return (x == nullptr) == (y == nullptr) && (x == nullptr || x->shape() == y->shape());
  });
}

}  // namespace

bool is_another_call(const Placed& placed) {
  const Fault& fault = *placed.fault;
  return fault.changes_inputs() && fault.rerun == nullptr && fault.rewrite == nullptr && fault.flaw == nullptr &&
         fault.instead == nullptr && !fault.reads_beyond;
}

namespace {

JudgeOptions with_details(JudgeOptions options) {
  options.details = true;
  return options;
}
/// Of the elements that fail, those that fail with the mistake too: what it spoils beside them says that it was not made everywhere.
std::int64_t still_failing(const OutputVerdict& output, const OutputVerdict& other) {
  if (output.detail == nullptr || other.detail == nullptr) return other.failing;
  const std::set<std::int64_t> still(other.detail->failing.begin(), other.detail->failing.end());
  const auto& failing = output.detail->failing;
  return std::count_if(failing.begin(), failing.end(), [&](std::int64_t i) { return still.count(i) > 0; });
}

}  // namespace

std::unique_ptr<FewRows> FewRows::of(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                     const JudgeOptions& options) {
  for (const std::string& symbol : counted_by(call)) {
    const std::int64_t rows = rows_along(call.op, call.inputs, symbol);
    const std::int64_t few = few_of(rows);
    if (few == 0) continue;
    const std::int64_t begin = first_failing(call.op, verdict, symbol, rows, few);
    try {
      std::unique_ptr<FewRows> some(new FewRows(call, actual, options, {RowRange{symbol, begin, std::min(begin + few, rows)}}));
      if (some->verdict_.outcome == Outcome::fail &&
          same_bits(some->golden_.outputs, windowed(call.op, call.golden.outputs, some->window_)))
        return some;
    } catch (const Error&) {
      continue;  // inputs that say something of all rows do not fit some of them
    }
  }
  return nullptr;
}

FewRows::FewRows(const FaultCase& call, const NamedTensors& actual, const JudgeOptions& options, const Window& window)
    : whole_(call.inputs),
      window_(window),
      options_(with_details(options)),
      inputs_(resized(call.op, call.inputs, window)),
      actual_(windowed(call.op, actual, window)),
      golden_(run_golden(call.op, inputs_, call.exec)),
      verdict_(judge(call.op, inputs_, golden_, actual_, options_)),
      rows_lie_side_by_side_(rows_lie_side_by_side(call.op, call.inputs, window.front().symbol)),
      call_{call.op, inputs_, golden_, call.exec} {
  for (const Strikes strikes : {Strikes::kernel, Strikes::attribute, Strikes::call, Strikes::input})
    for (Placed& placed : placements(call_, strikes)) placed_.emplace(placed.id(), std::move(placed));
  for (const Fault& fault : composed_faults())
    if (!fault.far)
      for (Placed& placed : placements(fault, call_)) placed_.emplace(placed.id(), std::move(placed));
}

bool FewRows::rule_out(const Placed& placed) const {
  if (placed.fault->strikes == Strikes::output) return false;
  // What a row is given by the whole call with the mistake may be another row's.
  if (is_another_call(placed) && (placed.fault->far || of_all_rows(placed) || window_.front().begin > 0)) return rule_out_of_whole(placed);
  return !placed.fault->far && !of_all_rows(placed) && rule_out_within(placed);
}

/// The mistake made in these rows alone.
bool FewRows::rule_out_within(const Placed& placed) const {
  if (rows_lie_side_by_side_ && placed.fault->strikes == Strikes::kernel) return false;
  const auto here = placed_.find(placed.id());
  if (here == placed_.end()) return false;
  const auto explanation = replay(here->second, actual_, verdict_, options_);
  return explanation && !explanation->complete && explanation->outputs.empty() && explanation->part.empty() &&
         2 * explanation->failing > verdict_.failing();
}

/// These rows of the whole call with the mistake.
bool FewRows::rule_out_of_whole(const Placed& placed) const {
  try {
    const Arguments changed = inputs_with(placed);
    if (!same_shapes(call_.op, whole_, changed)) return false;
    const Arguments inputs = resized(call_.op, changed, window_);
    const Verdict other = judge(call_.op, inputs, run_golden(call_.op, inputs, call_.exec), actual_, options_);
    std::int64_t left = 0;
    for (const OutputVerdict& output : verdict_.outputs) {
      const auto same = std::find_if(other.outputs.begin(), other.outputs.end(), [&](const auto& o) { return o.name == output.name; });
      if (same == other.outputs.end() || (output.outcome == Outcome::fail && same->failing == 0)) return false;
      left += still_failing(output, *same);
    }
    return 2 * left > verdict_.failing();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace dodona::oracle
