#include "oracle/faults/explain.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "core/threads.h"
#include "dodona/error.h"
#include "io/stopwatch.h"
#include "oracle/cases/window.h"
#include "oracle/faults/faults.h"
#include "oracle/faults/few_rows.h"
#include "oracle/faults/fit.h"
#include "quant/element.h"

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
      if (strikes == Strikes::output && placed.fault->undo == nullptr) {
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
  for (const Fault& fault : axis_faults())
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

// ---- a variant of each row's own

/// How many rows outputs of a request have, and which number it has: by offsets whose end is the number of tokens.
std::vector<std::int64_t> request_sizes(const FaultCase& call, std::int64_t tokens) {
  for (const TensorSpec& spec : call.op.schema().tensors) {
    const Tensor* const offsets = call.inputs.find(spec.name);
    if (spec.role != Role::indptr || offsets == nullptr || !offsets->defined() || offsets->elements() < 2 ||
        static_cast<std::int64_t>(quant::get(*offsets, offsets->elements() - 1)) != tokens)
      continue;
    std::vector<std::int64_t> sizes;
    for (std::int64_t b = 0; b + 1 < offsets->elements(); ++b)
      sizes.push_back(static_cast<std::int64_t>(quant::get(*offsets, b + 1) - quant::get(*offsets, b)));
    return sizes;
  }
  return {};
}
/// Keys of each of so many requests, by lengths or by other offsets.
std::vector<std::int64_t> key_counts(const FaultCase& call, std::size_t requests, std::int64_t tokens) {
  for (const TensorSpec& spec : call.op.schema().tensors) {
    const Tensor* const numbers = call.inputs.find(spec.name);
    if (numbers == nullptr || !numbers->defined() || is_float(numbers->dtype()) || numbers->rank() != 1) continue;
    std::vector<std::int64_t> counts;
    const auto at = [&](std::int64_t i) { return static_cast<std::int64_t>(quant::get(*numbers, i)); };
    const auto count = static_cast<std::size_t>(numbers->elements());
    if (spec.role != Role::indptr && count == requests)
      for (std::int64_t b = 0; b < numbers->elements(); ++b) counts.push_back(at(b));
    if (spec.role == Role::indptr && count == requests + 1 && at(numbers->elements() - 1) != tokens)
      for (std::int64_t b = 0; b + 1 < numbers->elements(); ++b) counts.push_back(at(b + 1) - at(b));
    if (counts.size() == requests) return counts;
  }
  return {};
}

/// What makes these numbers of keys, of each token more than it should see: nothing where no usual mistake does.
std::string meaning_of_extents(const FaultCase& call, const std::map<std::int64_t, std::set<std::int64_t>>& more, std::int64_t tokens) {
  const std::vector<std::int64_t> queries = request_sizes(call, tokens);
  if (queries.empty()) return {};
  const std::vector<std::int64_t> keys = key_counts(call, queries.size(), tokens);
  const std::int64_t longest = *std::max_element(queries.begin(), queries.end());
  const std::int64_t most_keys = keys.empty() ? 0 : *std::max_element(keys.begin(), keys.end());
  struct Way {
    const char* words;
    std::function<std::int64_t(std::size_t)> more;
  };
  std::vector<Way> ways{
      {"the queries of all requests are taken for each one's own", [&](std::size_t b) { return queries[b] - tokens; }},
      {"each request is taken to have as many queries as the longest", [&](std::size_t b) { return queries[b] - longest; }}};
  if (!keys.empty()) {
    ways.push_back({"the mask's diagonal is that of the longest request's queries and keys for all requests",
                    [&](std::size_t b) { return most_keys - longest - (keys[b] - queries[b]); }});
    ways.push_back({"the mask is aligned to the first key, not to the last", [&](std::size_t b) { return queries[b] - keys[b]; }});
    ways.push_back({"each request is taken to have as many keys as the longest", [&](std::size_t b) { return most_keys - keys[b]; }});
  }
  for (const Way& way : ways) {
    const bool fits = std::all_of(more.begin(), more.end(), [&](const auto& token) {
      std::size_t b = 0;
      for (std::int64_t end = queries[0]; token.first >= end && b + 1 < queries.size();) end += queries[++b];
      // There may be no room for all of it.
      const std::int64_t asked = way.more(b);
      return std::any_of(token.second.begin(), token.second.end(),
                         [&](std::int64_t number) { return number == asked || (asked > 0 && number > 0 && number < asked); });
    });
    if (fits) return std::string(": ") + way.words;
  }
  return {};
}

/// One mistake in variants that are numbers, each row with one of its own: together they account for all that fails.
std::optional<Explanation> by_row(const Fault& fault, const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                  const JudgeOptions& options, const std::function<bool()>& time_is_up) {
  struct Rows {
    std::int64_t width = 1;                                  ///< of an output's row
    std::int64_t per_token = 1;                              ///< rows
    std::map<std::int64_t, std::set<std::int64_t>> numbers;  ///< of each row that fails: those that account for it
  };
  std::map<std::string, Rows> outputs;
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.failing == 0 || output.detail == nullptr) continue;
    const Dims& shape = output.detail->golden.shape();
    Rows rows;
    rows.width = shape.rank() >= 3 ? shape.at(-1) : 1;
    rows.per_token = shape.rank() >= 1 ? element_count(shape) / rows.width / std::max<std::int64_t>(shape[0], 1) : 1;
    for (const std::int64_t i : output.detail->failing) rows.numbers[i / rows.width];
    outputs[output.name] = std::move(rows);
  }
  JudgeOptions detailed = options;
  detailed.details = true;
  for (const Placed& placed : placements(fault, call)) {
    if (time_is_up()) return std::nullopt;
    const std::string text = std::get<std::string>(*placed.site.taken);
    const std::int64_t number = std::stoll(text.substr(text.find(' ') + 1));
    try {
      const Verdict other = judge(call.op, call.inputs, run_with(placed, call.inputs), actual, detailed);
      for (const OutputVerdict& output : other.outputs) {
        const auto rows = outputs.find(output.name);
        if (rows == outputs.end() || output.detail == nullptr) continue;
        std::set<std::int64_t> still;
        for (const std::int64_t i : output.detail->failing) still.insert(i / rows->second.width);
        for (auto& [row, its] : rows->second.numbers)
          if (still.count(row) == 0) its.insert(number);
      }
    } catch (const Error&) {
      continue;
    }
  }
  // Of each token those on which all of its rows agree: the weight of a key may be too small to tell by.
  std::map<std::int64_t, std::set<std::int64_t>> more;
  std::int64_t tokens = 0;
  for (const auto& [name, rows] : outputs) {
    tokens = find(actual, name)->rank() > 0 ? find(actual, name)->size(0) : 1;
    for (const auto& [row, its] : rows.numbers) {
      const auto [token, first] = more.emplace(row / rows.per_token, its);
      if (!first) std::erase_if(token->second, [&numbers = its](std::int64_t number) { return numbers.count(number) == 0; });
      if (token->second.empty()) return std::nullopt;
    }
  }
  if (more.size() < 2) return std::nullopt;
  // Numbers that nothing makes are no cause: any rows differ in some.
  const auto nearer = [](std::int64_t a, std::int64_t b) { return std::abs(a) < std::abs(b); };
  const auto nearest = [&](const std::set<std::int64_t>& numbers) { return *std::min_element(numbers.begin(), numbers.end(), nearer); };
  const bool common =
      std::all_of(more.begin(), more.end(), [&](const auto& token) { return nearest(token.second) == nearest(more.begin()->second); });
  const std::string meaning = meaning_of_extents(call, more, tokens);
  if (!common && meaning.empty()) return std::nullopt;
  constexpr std::size_t shown = 4;
  std::string some;
  std::size_t count = 0;
  for (const auto& [token, numbers] : more)
    if (const std::int64_t its = nearest(numbers); ++count <= shown)
      some += (some.empty() ? "" : ", ") +
              ("row " + std::to_string(token) + ": " + std::to_string(std::abs(its)) + (its < 0 ? " fewer" : " more"));
  Explanation explanation{std::string(fault.id),
                          std::string(fault.summary) + " (" + some + (more.size() > shown ? "..." : "") + ")" + meaning};
  for (const auto& [name, rows] : outputs) explanation.outputs.push_back(name);
  explanation.complete = true;
  return explanation;
}

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
  const std::unique_ptr<FewRows> few = FewRows::of(call, actual, alone);
  const auto time_is_up = [&] { return watch.seconds() > seconds; };
  const FailingIndices failing(*c.op, verdict);
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
      if (failing.rule_out(faults[i]) || (few != nullptr && few->rule_out(faults[i]))) {
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
  const Candidates faults = candidates(call);
  try_all(faults.known);
  if (!complete()) try_all(faults.unlikely);
  if (!complete()) {
    if (progress) progress(faults.known.size(), faults.known.size(), "one unknown number");
    JudgeOptions detailed = options;
    detailed.details = true;
    const bool kept = std::all_of(verdict.outputs.begin(), verdict.outputs.end(), [](const auto& o) { return o.detail != nullptr; });
    for (Explanation& number :
         fitted_numbers(c, golden, actual, kept ? verdict : judge(*c.op, c.inputs, golden, actual, detailed), options, time_is_up))
      found.push_back(std::move(number));
  }
  if (!complete()) try_all(composed(call));
  if (!complete())
    for (const Fault& fault : faults_by_row())
      if (auto explanation = by_row(fault, call, actual, verdict, alone, time_is_up)) found.push_back(std::move(*explanation));
  if (complete()) std::erase_if(found, [](const Explanation& e) { return !e.complete; });
  std::stable_sort(found.begin(), found.end(), [](const Explanation& a, const Explanation& b) { return a.failing < b.failing; });
  return explained;
}

}  // namespace dodona::oracle
