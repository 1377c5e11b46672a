// One fault replayed: what would be left of the failures if the kernel had it?
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "core/flaw.h"
#include "dodona/error.h"
#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/faults/told/units.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

bool fails(const OutputVerdict& output) {
  return output.outcome == Outcome::fail;
}

/// Elements that the mistake does not account for: those that fail with it, and those that it leaves nothing to compare of. A case in
/// which nothing can fail explains nothing. Of an op's own mistakes golden mode knows what they leave unwritten, and what lies beyond an
/// operand's end nobody does: then half of the elements are enough.
std::int64_t unexplained(const OutputVerdict& output, const OutputVerdict& other, bool partly) {
  if (other.outcome == Outcome::vacuous && output.outcome != Outcome::vacuous) return output.compared;
  if (partly && 2 * other.compared >= output.compared) return other.failing;
  return other.failing + std::max<std::int64_t>(output.compared - other.compared, 0);
}

/// Elements that fail, and that the mistake leaves nothing to compare of, or to excuse as a defect that is known: it does not account for
/// them either. Where outputs are moved back for the comparison, elements are others.
std::int64_t set_aside(const Placed& placed, const OutputVerdict& output, const OutputVerdict& other, bool partly) {
  const bool moved = placed.fault->strikes == Strikes::output || placed.fault->rewrite != nullptr || placed.fault->instead != nullptr;
  if (moved || output.detail == nullptr || other.detail == nullptr || other.detail->share.size() != output.detail->share.size()) return 0;
  const std::vector<double>& share = other.detail->share;
  const auto& failing = output.detail->failing;
  const std::set<std::int64_t> still(other.detail->failing.begin(), other.detail->failing.end());
  return std::count_if(failing.begin(), failing.end(), [&](std::int64_t i) {
    const double x = share[static_cast<std::size_t>(i)];
    return still.count(i) == 0 && (x > 1 || (std::isnan(x) && !partly));
  });
}

/// Recipes that only widen what is allowed explain nothing.
bool changes_nothing(const Placed& placed, const GoldenRun& golden) {
  if (placed.fault->strikes == Strikes::output || placed.fault->rewrite != nullptr) return false;
  const NamedTensors& before = placed.site.call.golden.outputs;
  return golden.outputs.size() == before.size() &&
         std::equal(before.begin(), before.end(), golden.outputs.begin(), [](const auto& a, const auto& b) {
           if (a.second.dtype() != b.second.dtype() || !(a.second.shape() == b.second.shape())) return false;
           for (std::int64_t i = 0; i < a.second.elements(); ++i)
             if (quant::get_bits(a.second, i) != quant::get_bits(b.second, i)) return false;
           return true;
         });
}

/// Inputs that are made of others (a schedule of lengths) as a caller with the struck ones would have made them.
Arguments with_kin_made(const Placed& placed, const Arguments& inputs) {
  Arguments made = inputs;
  for (const TensorSpec& spec : placed.site.call.op.schema().tensors)
    if (const Tensor* const tensor = inputs.find(spec.name); !spec.kin.empty() && tensor != nullptr && spec.name != placed.site.name)
      made.set(spec.name, tensor->clone());
  op_with(placed).make_inputs(made, 0);
  return made;
}

bool has_kin(const Op& op) {
  const auto& tensors = op.schema().tensors;
  return std::any_of(tensors.begin(), tensors.end(), [](const TensorSpec& spec) { return !spec.kin.empty(); });
}

/// Codes that stand for no number have several bits, and whichever a kernel writes where the fault gives one says as much.
NamedTensors with_its_nans(NamedTensors outputs, const NamedTensors& faulty) {
  for (auto& [name, tensor] : outputs) {
    const Tensor* const other = find(faulty, name);
    if (other == nullptr || other->dtype() != tensor.dtype() || !(other->shape() == tensor.shape()) ||
        (tensor.dtype() != DType::f8_e4m3 && tensor.dtype() != DType::f8_e5m2))
      continue;
    bool copied = false;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      const std::uint64_t bits_of = quant::get_bits(*other, i);
      if (!std::isnan(quant::get(*other, i)) || !std::isnan(quant::get(tensor, i)) || quant::get_bits(tensor, i) == bits_of) continue;
      if (!std::exchange(copied, true)) tensor = tensor.clone();
      quant::set_bits(tensor, i, bits_of);
    }
  }
  return outputs;
}

/// The right answer, as the judges fare with it where the mistake was made: it has to fail there about as much as what was given fails
/// here. What it passes as well says nothing of a mistake: inputs that are made all alike leave every choice open, and rows without any
/// variance all that divides by it.
bool passes_the_right_answer(const Placed& placed, const Arguments& inputs, const GoldenRun& mistaken, const Verdict& verdict,
                             const JudgeOptions& options) {
  // Of what lies beyond an operand's end nothing is asked anyway.
  const bool unknown = placed.fault->reads_beyond && placed.fault->rerun == nullptr;
  if (!placed.fault->changes_inputs() || unknown || placed.fault->rewrite != nullptr || placed.fault->instead != nullptr) return false;
  const Verdict right = judge(op_with(placed), inputs, mistaken, placed.site.call.golden.outputs, options);
  return std::all_of(verdict.outputs.begin(), verdict.outputs.end(), [&](const OutputVerdict& output) {
    const auto same = std::find_if(right.outputs.begin(), right.outputs.end(), [&](const auto& o) { return o.name == output.name; });
    if (!fails(output) || same == right.outputs.end()) return true;
    // Of what is compared: where an operand ends too early that is less.
    const auto share = [](const OutputVerdict& o) {
      return static_cast<double>(o.failing) / static_cast<double>(std::max<std::int64_t>(o.compared, 1));
    };
    return 2 * share(*same) < share(output);
  });
}

/// How the outputs fare beside a kernel with the fault; nothing where it changes nothing, or leaves everything open. Throws Error when the
/// op refuses the call.
std::optional<Verdict> verdict_with(const Placed& placed, const Arguments& inputs, const NamedTensors& actual, const Verdict& verdict,
                                    const JudgeOptions& options) {
  const GoldenRun golden = run_with(placed, inputs);
  const NamedTensors outputs = with_its_nans(restored(placed, actual), golden.outputs);
  if (changes_nothing(placed, golden)) return std::nullopt;
  Verdict found = judge(op_with(placed), inputs, golden, outputs, options);
  // Only what accounts for more than half of the failures is worth asking.
  if (2 * found.failing() < verdict.failing() && passes_the_right_answer(placed, inputs, golden, verdict, options)) return std::nullopt;
  return found;
}

/// Where elements fail that would all be right if the mistake had been made with them alone: of one tile, of one request, of every second
/// row. Enough of them, and with different values, in a place that has a name, or that tells them from those which the mistake spoils.
std::optional<std::string> where_it_explains(const Op& op, const Arguments& inputs, const OutputVerdict& output,
                                             const OutputVerdict& other) {
  constexpr std::size_t enough = 8, values_enough = 4;
  if (output.detail == nullptr || other.detail == nullptr) return std::nullopt;
  const OutputDetail &had = *output.detail, &has = *other.detail;
  if (had.failing.size() < enough || has.share.size() != had.share.size() || has.actual.elements() != had.actual.elements())
    return std::nullopt;
  std::set<std::uint64_t> values;
  std::vector<std::int64_t> still = has.failing;
  std::sort(still.begin(), still.end());
  for (const std::int64_t i : had.failing) {
    if (std::isnan(has.share[static_cast<std::size_t>(i)]) || std::binary_search(still.begin(), still.end(), i)) return std::nullopt;
    if (values.size() < values_enough) values.insert(quant::get_bits(had.actual, i));
  }
  if (values.size() < values_enough) return std::nullopt;
  const bool has_a_name = !output.pattern.starts_with("scattered") && !output.pattern.starts_with("sporadic");
  if (has_a_name || still.empty()) return output.pattern;
  const LogicalView view = logical_view(op, *op.schema().find_tensor(output.name), had.golden.shape(), inputs);
  if (element_count(view.shape) != had.golden.elements()) return std::nullopt;
  return told_apart(had.failing, still, view);
}

/// Of what fails enough is compared with the mistake too: what lies beyond an operand's end may hide all that is wrong. Without every
/// element's share what is not compared any more is taken for what fails.
bool hides_what_fails(const OutputVerdict& output, const OutputVerdict& other) {
  if (!fails(output)) return false;
  std::int64_t known = output.failing - std::min(output.failing, std::max<std::int64_t>(output.compared - other.compared, 0));
  if (output.detail != nullptr && other.detail != nullptr && other.detail->share.size() == output.detail->share.size()) {
    const auto& failing = output.detail->failing;
    known = std::count_if(failing.begin(), failing.end(),
                          [&](std::int64_t i) { return !std::isnan(other.detail->share[static_cast<std::size_t>(i)]); });
  }
  return 8 * known < output.failing;
}

}  // namespace

std::optional<Explanation> replay(const Placed& placed, const NamedTensors& actual, const Verdict& verdict, const JudgeOptions& options) {
  std::optional<Verdict> found;
  JudgeOptions with_fault = options;
  with_fault.details = std::all_of(verdict.outputs.begin(), verdict.outputs.end(), [](const auto& o) { return o.detail != nullptr; });
  // Modes other than golden make no mistakes of the op's own.
  if (placed.fault->strikes == Strikes::kernel) with_fault.mode = Mode::golden;
  // What is judged by the choices that were made is computed anew, with the flaw too.
  const std::unique_ptr<const Flaw> flaw = flaw_of(placed);
  with_fault.exec.flaw = flaw.get();
  try {
    const Arguments inputs = inputs_with(placed);
    try {
      found = verdict_with(placed, inputs, actual, verdict, with_fault);
    } catch (const Error&) {
      if (placed.fault->strikes != Strikes::input || !has_kin(op_with(placed))) throw;
      found = verdict_with(placed, with_kin_made(placed, inputs), actual, verdict, with_fault);
    }
  } catch (const Error&) {
    // Sizes, ids or recipes that the op refuses: this fault cannot have been made here.
    return std::nullopt;
  }
  if (!found) return std::nullopt;
  const Verdict& other = *found;
  Explanation explanation{placed.id(), placed.text(), {}, true, 0, false, {}, placed.fault->variant};
  std::size_t fail = 0;
  bool part = placed.fault->strikes != Strikes::output && !placed.fault->unlikely;
  std::string place;
  for (const OutputVerdict& output : verdict.outputs) {
    const auto same = std::find_if(other.outputs.begin(), other.outputs.end(), [&](const auto& o) { return o.name == output.name; });
    // Who gave this output was not asked to leave it out.
    if (same == other.outputs.end() ||
        (placed.fault->strikes == Strikes::input && placed.fault->reads_beyond && hides_what_fails(output, *same)))
      return std::nullopt;
    const bool partly = placed.fault->strikes == Strikes::kernel || placed.fault->reads_beyond;
    std::int64_t left = unexplained(output, *same, partly);
    if (left == 0 && fails(output)) left = set_aside(placed, output, *same, partly);
    explanation.failing += left;
    if (left > 0) explanation.complete = false;
    if (fails(output)) ++fail;
    if (fails(output) && part) {
      const auto where = where_it_explains(placed.site.call.op, placed.site.call.inputs, output, *same);
      part = where.has_value();
      if (where) place += (place.empty() ? "" : "; ") + output.name + ", " + *where;
    }
    if (left == 0 && fails(output)) explanation.outputs.push_back(output.name);
  }
  if (part && !explanation.complete) explanation.part = place;
  explanation.of_all_failing = !explanation.complete && fail > 0 && fail == explanation.outputs.size();
  return explanation;
}

}  // namespace dodona::oracle
