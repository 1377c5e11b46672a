#include "oracle/faults/explain.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "core/threads.h"
#include "io/stopwatch.h"
#include "oracle/cases/window.h"
#include "oracle/faults/faults.h"
#include "oracle/faults/few_products.h"
#include "oracle/faults/few_rows.h"
#include "oracle/faults/told/by_row.h"
#include "oracle/faults/told/depth_elsewhere.h"
#include "oracle/faults/told/fit.h"
#include "oracle/faults/told/holds_inputs.h"
#include "oracle/faults/told/key_weights.h"
#include "oracle/faults/told/largest_code.h"
#include "oracle/faults/told/layernorm.h"
#include "oracle/faults/told/left_out.h"
#include "oracle/faults/told/norm.h"
#include "oracle/faults/told/nothing_drawn.h"
#include "oracle/faults/told/parts_of_depth.h"
#include "oracle/faults/told/rank_terms.h"
#include "oracle/faults/told/row_weights.h"
#include "oracle/faults/told/rows_of_requests.h"
#include "oracle/faults/told/rows_of_zeros.h"
#include "oracle/faults/told/scales_used.h"
#include "oracle/faults/told/softmax.h"
#include "oracle/faults/told/substituted.h"
#include "oracle/faults/told/two_uses.h"

namespace dodona::oracle {
namespace {

/// What fits, the likeliest first: outputs that can be restored, which costs no run, and what the op's own kernels are known for; then
/// other attributes; then other inputs; last what was written wrongly for good, of which a verdict's pattern says something already.
/// Attributes that come to the same value are tried once.
struct Candidates {
  std::vector<Placed> known;     ///< the likeliest first
  std::vector<Placed> unlikely;  ///< for where none of those accounts for everything
};
Candidates candidates(const FaultCase& call) {
  std::vector<Placed> found, unlikely, lost;
  std::set<std::string> values;
  for (const Strikes strikes : {Strikes::output, Strikes::kernel, Strikes::attribute, Strikes::call, Strikes::input})
    for (Placed& placed : placements(call, strikes)) {
      // Outputs of zeros are what many mistakes come to, and tell none of them.
      const bool zeros = placed.fault->id == "zeros";
      if (strikes == Strikes::output && placed.fault->undo == nullptr && !zeros) {
        lost.push_back(std::move(placed));
        continue;
      }
      if (placed.fault->unlikely) {
        unlikely.push_back(std::move(placed));
        continue;
      }
      if (strikes == Strikes::attribute && !values.insert(placed.site.name + "=" + to_string(*placed.site.taken)).second) continue;
      found.push_back(std::move(placed));
    }
  for (Placed& placed : lost) found.push_back(std::move(placed));
  return {std::move(found), std::move(unlikely)};
}

/// Where with how, for what no mistake that has a name of its own accounts for.
std::vector<Placed> composed(const FaultCase& call) {
  std::vector<Placed> found;
  for (const Fault& fault : composed_faults())
    for (Placed& placed : placements(fault, call)) found.push_back(std::move(placed));
  return found;
}

/// Which indices of each dimension of the outputs fail: a fault that leaves one of them as it is has not made them wrong.
class FailingIndices {
 public:
  FailingIndices(const Op& op, const Verdict& verdict) {
    const auto& independent = op.schema().properties.rows_independent;
    for (const OutputVerdict& output : verdict.outputs) {
      if (output.failing == 0 || output.detail == nullptr) continue;
      const Dims& shape = output.detail->golden.shape();
      const auto dims = dims_of(op.schema().find_tensor(output.name)->shape, shape.rank());
      if (static_cast<int>(dims.size()) != shape.rank()) continue;
      std::int64_t below = 1;
      for (int d = shape.rank() - 1; d >= 0; below *= shape[d--]) {
        const std::string& symbol = dims[static_cast<std::size_t>(d)];
        const bool apart =
            op.info().category == Category::gemm || std::find(independent.begin(), independent.end(), symbol) != independent.end();
        if (!apart) continue;
        std::vector<bool>& fails = fails_[symbol];
        fails.resize(std::max(fails.size(), static_cast<std::size_t>(shape[d])));
        for (const std::int64_t i : output.detail->failing) fails[static_cast<std::size_t>(i / below % shape[d])] = true;
      }
    }
  }
  bool rule_out(const Placed& placed) const {
    if (placed.fault->changes == nullptr) return false;
    const auto changes = placed.fault->changes(placed.site);
    const auto fails = changes ? fails_.find(changes->symbol) : fails_.end();
    if (fails == fails_.end() || fails->second.size() != changes->changed.size()) return false;
    for (std::size_t i = 0; i < fails->second.size(); ++i)
      if (fails->second[i] && !changes->changed[i]) return true;
    return false;
  }

 private:
  std::map<std::string, std::vector<bool>> fails_;
};

}  // namespace

std::vector<std::string> lines_of(const Explained& explained) {
  std::vector<std::string> lines;
  for (const Explanation& e : explained.found) {
    std::string outputs;
    for (const std::string& output : e.outputs) outputs += (outputs.empty() ? "" : ", ") + output;
    lines.push_back(e.complete        ? "reproduced by: " + e.text + (e.variant ? "   (to check against that: --variant " + e.id + ")" : "")
                    : !e.part.empty() ? "reproduced where it fails (" + e.part + ") by: " + e.text
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
  // Threads share out the mistakes, not the rows of one: most calls here are too small for that, and waiting for each other costs them
  // more.
  JudgeOptions alone = options;
  alone.exec.threads = 1;
  const FaultCase call{*c.op, c.inputs, golden, alone.exec};
  const std::unique_ptr<FewRows> few = FewRows::of(call, actual, verdict, alone);
  const auto time_is_up = [&] { return watch.seconds() > seconds; };
  const FailingIndices failing(*c.op, verdict);
  const std::unique_ptr<FewProducts> products = FewProducts::of(call, actual, verdict);
  auto& found = explained.found;
  const auto complete = [&] { return std::any_of(found.begin(), found.end(), [](const Explanation& e) { return e.complete; }); };
  const auto try_all = [&](const std::vector<Placed>& faults) {
    // What was written wrongly for good costs no run: it is tried before the time is up, and named behind the others even so.
    const auto costs_none = [](const Placed& placed) { return placed.fault->strikes == Strikes::output; };
    std::vector<std::size_t> order(faults.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_partition(order.begin(), order.end(), [&](std::size_t i) { return costs_none(faults[i]); });
    struct Tried {
      bool tried = false;
      std::optional<Explanation> explanation;
    };
    std::vector<Tried> results(faults.size());
    std::atomic<std::size_t> begun = 0;
    const auto try_next = [&](bool reports) {
      const std::size_t done = begun++;
      if (done >= order.size()) return false;
      const std::size_t i = order[done];
      if (reports && progress) progress(done, faults.size(), faults[i].id());
      if (failing.rule_out(faults[i]) || (products != nullptr && products->rule_out(faults[i])) ||
          (few != nullptr && few->rule_out(faults[i]))) {
        results[i].tried = true;
        return true;
      }
      results[i].explanation = replay(faults[i], actual, verdict, alone);
      results[i].tried = results[i].explanation.has_value();
      return true;
    };
    constexpr double worth_a_team = 1e9;
    parallel_for(options.exec.threads, options.exec.threads, worth_a_team, [&](std::int64_t worker) {
      while (!time_is_up() && try_next(worker == 0)) {
      }
    });
    explained.left += static_cast<int>(faults.size() - std::min(faults.size(), begun.load()));
    for (std::size_t i = 0; i < results.size(); ++i) {
      explained.tried += results[i].tried ? 1 : 0;
      auto& explanation = results[i].explanation;
      // Of what is unlikely a part proves nothing: there are many of them.
      const bool partly = explanation && !faults[i].fault->unlikely &&
                          (!explanation->outputs.empty() || !explanation->part.empty() || 10 * explanation->failing < verdict.failing());
      if (explanation && (explanation->complete || partly)) found.push_back(std::move(*explanation));
    }
  };
  // Every element's share, where who asks did not keep them.
  Verdict detailed;
  const auto with_details = [&]() -> const Verdict& {
    if (std::all_of(verdict.outputs.begin(), verdict.outputs.end(), [](const auto& o) { return o.detail != nullptr; })) return verdict;
    JudgeOptions details = options;
    details.details = true;
    if (detailed.outputs.empty()) detailed = judge(*c.op, c.inputs, golden, actual, details);
    return detailed;
  };
  const Candidates faults = candidates(call);
  try_all(faults.known);
  if (!complete()) try_all(faults.unlikely);
  if (!complete()) {
    if (progress) progress(faults.known.size(), faults.known.size(), "one unknown number");
    for (Explanation& number : fitted_numbers(c, golden, actual, with_details(), options, time_is_up)) found.push_back(std::move(number));
  }
  if (!complete()) try_all(composed(call));
  if (!complete())
    for (const Fault& fault : faults_by_row())
      if (auto explanation = by_row(fault, call, actual, verdict, alone, time_is_up)) found.push_back(std::move(*explanation));
  if (!complete())
    if (auto explanation = experts_left_out(call, actual, verdict, alone, time_is_up)) found.push_back(std::move(*explanation));
  if (!complete())
    if (auto explanation = one_of_two_uses(call, actual, verdict, alone, time_is_up)) found.push_back(std::move(*explanation));
  // What each part of the outputs was made of: by one rule it is said at once, else behind what is told below. Its runs are many: others
  // need time too.
  const double until = watch.seconds() + seconds / 4;
  const auto its_time_is_up = [&] { return time_is_up() || watch.seconds() > until; };
  const auto in_place = [](const Explanation& e) { return e.complete || e.of_all_failing || !e.part.empty(); };
  std::optional<Substituted> parts;
  if (std::none_of(found.begin(), found.end(), in_place)) parts = substituted(call, actual, with_details(), alone, its_time_is_up);
  if (parts && parts->by_rule) found.push_back(std::exchange(parts, std::nullopt)->explanation);
  // What the numbers say by themselves, where no mistake that can be made again does.
  for (const auto told : {rows_of_requests, rows_of_zeros, largest_code, softmax_told, norm_told, layernorm_told, row_weights,
                          parts_of_depth, key_weights, scales_used, depth_elsewhere, rank_terms, holds_inputs, nothing_drawn})
    if (!complete() && !time_is_up())
      if (auto explanation = told(call, actual, with_details(), alone)) found.push_back(std::move(*explanation));
  if (!complete() && parts) {
    parts->explanation.narrow = false;
    found.push_back(std::move(parts->explanation));
  }
  if (complete()) std::erase_if(found, [](const Explanation& e) { return !e.complete; });
  std::stable_sort(found.begin(), found.end(), [](const Explanation& a, const Explanation& b) { return a.failing < b.failing; });
  return explained;
}

}  // namespace dodona::oracle
