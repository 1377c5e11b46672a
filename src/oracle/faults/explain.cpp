#include "oracle/faults/explain.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "dodona/error.h"
#include "io/stopwatch.h"
#include "oracle/faults/faults.h"
#include "oracle/faults/few_rows.h"
#include "oracle/faults/fit.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

bool fails(const OutputVerdict& output) {
  return output.outcome == Outcome::fail;
}

/// What fits, the likeliest first: outputs that can be restored, which costs no run, and what the op's own kernels are known for; then
/// other attributes; then other inputs; last what was written wrongly for good, of which a verdict's pattern says something already.
/// Attributes that come to the same value are tried once.
std::vector<Placed> candidates(const FaultCase& call) {
  std::vector<Placed> found, lost;
  std::set<std::string> values;
  for (const Strikes strikes : {Strikes::output, Strikes::kernel, Strikes::attribute, Strikes::call, Strikes::input})
    for (Placed& placed : placements(call, strikes)) {
      if (strikes == Strikes::output && placed.fault->undo == nullptr) {
        lost.push_back(std::move(placed));
        continue;
      }
      if (strikes == Strikes::attribute && !values.insert(placed.site.name + "=" + to_string(*placed.site.taken)).second) continue;
      found.push_back(std::move(placed));
    }
  for (Placed& placed : lost) found.push_back(std::move(placed));
  return found;
}

/// Elements that the mistake does not account for: those that fail with it, and those that it leaves nothing to compare of. A case in
/// which nothing can fail explains nothing. Of an op's own mistakes golden mode knows what they leave unwritten, and what lies beyond an
/// operand's end nobody does: then half of the elements are enough.
std::int64_t unexplained(const OutputVerdict& output, const OutputVerdict& other, bool partly) {
  if (other.outcome == Outcome::vacuous && output.outcome != Outcome::vacuous) return output.compared;
  if (partly && 2 * other.compared >= output.compared) return other.failing;
  return other.failing + std::max<std::int64_t>(output.compared - other.compared, 0);
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

/// How the outputs fare beside a kernel with the fault; nothing where it changes nothing. Throws Error when the op refuses the call.
std::optional<Verdict> verdict_with(const Placed& placed, const Arguments& inputs, const NamedTensors& actual, JudgeOptions options) {
  const GoldenRun golden = run_with(placed, inputs);
  const NamedTensors outputs = with_its_nans(restored(placed, actual), golden.outputs);
  // Modes other than golden make no mistakes of the op's own.
  if (placed.fault->strikes == Strikes::kernel) options.mode = Mode::golden;
  if (changes_nothing(placed, golden)) return std::nullopt;
  return judge(op_with(placed), inputs, golden, outputs, options);
}

}  // namespace

std::optional<Explanation> replay(const Placed& placed, const NamedTensors& actual, const Verdict& verdict, const JudgeOptions& options) {
  std::optional<Verdict> found;
  try {
    const Arguments inputs = inputs_with(placed);
    try {
      found = verdict_with(placed, inputs, actual, options);
    } catch (const Error&) {
      if (placed.fault->strikes != Strikes::input || !has_kin(op_with(placed))) throw;
      found = verdict_with(placed, with_kin_made(placed, inputs), actual, options);
    }
  } catch (const Error&) {
    // Sizes, ids or recipes that the op refuses: this fault cannot have been made here.
    return std::nullopt;
  }
  if (!found) return std::nullopt;
  const Verdict& other = *found;
  Explanation explanation{placed.id(), placed.text(), {}, true, 0, placed.fault->variant};
  for (const OutputVerdict& output : verdict.outputs) {
    const auto same = std::find_if(other.outputs.begin(), other.outputs.end(), [&](const auto& o) { return o.name == output.name; });
    // Who gave this output was not asked to leave it out.
    if (same == other.outputs.end()) return std::nullopt;
    const std::int64_t left = unexplained(output, *same, placed.fault->strikes == Strikes::kernel || placed.fault->reads_beyond);
    explanation.failing += left;
    if (left > 0) explanation.complete = false;
    if (left == 0 && fails(output)) explanation.outputs.push_back(output.name);
  }
  return explanation;
}

std::vector<std::string> lines_of(const Explained& explained) {
  std::vector<std::string> lines;
  for (const Explanation& e : explained.found) {
    std::string outputs;
    for (const std::string& output : e.outputs) outputs += (outputs.empty() ? "" : ", ") + output;
    lines.push_back(e.complete ? "reproduced by: " + e.text + (e.variant ? "   (to check against that: --variant " + e.id + ")" : "")
                    : !e.outputs.empty() ? "reproduced in " + outputs + " by: " + e.text
                                         : "nearly reproduced (" + std::to_string(e.failing) + " elements still differ) by: " + e.text);
  }
  if (lines.empty())
    lines.push_back("none of " + std::to_string(explained.tried) + " well-known mistakes and recipes reproduces these outputs");
  if (explained.left > 0) lines.push_back("time was up: " + std::to_string(explained.left) + " mistakes were not tried");
  return lines;
}

Explained explain(const Case& c, const GoldenRun& golden, const NamedTensors& actual, const Verdict& verdict, const JudgeOptions& options,
                  double seconds, const std::function<void(std::size_t, std::size_t, const std::string&)>& progress) {
  Explained explained;
  const io::Stopwatch watch;
  const FaultCase call{*c.op, c.inputs, golden, options.exec};
  const std::vector<Placed> faults = candidates(call);
  const std::unique_ptr<FewRows> few = FewRows::of(call, actual, options);
  const auto time_is_up = [&] { return watch.seconds() > seconds; };
  // What was written wrongly for good costs no run: it is tried before the time is up, and named behind the others even so.
  const auto costs_none = [](const Placed& placed) { return placed.fault->strikes == Strikes::output; };
  std::vector<std::size_t> order(faults.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_partition(order.begin(), order.end(), [&](std::size_t i) { return costs_none(faults[i]); });
  std::vector<std::pair<std::size_t, Explanation>> ranked;
  for (std::size_t done = 0; done < order.size(); ++done) {
    const std::size_t i = order[done];
    if (time_is_up()) {
      explained.left = static_cast<int>(faults.size() - done);
      break;
    }
    if (progress) progress(done, faults.size(), faults[i].id());
    if (few != nullptr && few->rule_out(faults[i])) {
      ++explained.tried;
      continue;
    }
    const auto explanation = replay(faults[i], actual, verdict, options);
    if (!explanation) continue;
    ++explained.tried;
    const bool most = 10 * explanation->failing < verdict.failing();
    if (explanation->complete || !explanation->outputs.empty() || most) ranked.emplace_back(i, *explanation);
  }
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [rank, explanation] : ranked) explained.found.push_back(std::move(explanation));
  auto& found = explained.found;
  const auto complete = [&] { return std::any_of(found.begin(), found.end(), [](const Explanation& e) { return e.complete; }); };
  if (!complete()) {
    if (progress) progress(faults.size(), faults.size(), "one unknown number");
    JudgeOptions detailed = options;
    detailed.details = true;
    const bool kept = std::all_of(verdict.outputs.begin(), verdict.outputs.end(), [](const auto& o) { return o.detail != nullptr; });
    for (Explanation& number :
         fitted_numbers(c, golden, actual, kept ? verdict : judge(*c.op, c.inputs, golden, actual, detailed), options, time_is_up))
      found.push_back(std::move(number));
  }
  if (complete()) std::erase_if(found, [](const Explanation& e) { return !e.complete; });
  std::stable_sort(found.begin(), found.end(), [](const Explanation& a, const Explanation& b) { return a.failing < b.failing; });
  return explained;
}

}  // namespace dodona::oracle
