#include "oracle/faults/told/by_row.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dodona/error.h"
#include "oracle/faults/tables/fault_tools.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

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

}  // namespace

std::optional<Explanation> by_row(const Fault& fault, const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                  const JudgeOptions& options, const std::function<bool()>& time_is_up) {
  struct Rows {
    std::int64_t width = 1;                                  ///< of an output's row
    std::int64_t per_token = 1;                              ///< rows
    std::map<std::int64_t, std::set<std::int64_t>> numbers;  ///< of each row that fails: those that account for it
    std::vector<std::int64_t> failing;                       ///< elements
  };
  std::map<std::string, Rows> outputs;
  for (const OutputVerdict& output : verdict.outputs) {
    if (output.failing == 0 || output.detail == nullptr) continue;
    const Dims& shape = output.detail->golden.shape();
    Rows rows;
    rows.width = shape.rank() >= 3 ? shape.at(-1) : 1;
    rows.per_token = shape.rank() >= 1 ? element_count(shape) / rows.width / std::max<std::int64_t>(shape[0], 1) : 1;
    for (const std::int64_t i : output.detail->failing) rows.numbers[i / rows.width];
    rows.failing = output.detail->failing;
    outputs[output.name] = std::move(rows);
  }
  JudgeOptions detailed = options;
  detailed.details = true;
  std::map<std::int64_t, std::string> words;
  for (const Placed& placed : placements(fault, call)) {
    if (time_is_up()) return std::nullopt;
    const std::int64_t number = std::stoll(fault_tools::rest_of(fault_tools::word(placed.site)));
    words[number] = fault.words(placed.site);
    try {
      const Verdict other = judge(call.op, call.inputs, run_with(placed, call.inputs), actual, detailed);
      for (const OutputVerdict& output : other.outputs) {
        const auto rows = outputs.find(output.name);
        if (rows == outputs.end() || output.detail == nullptr) continue;
        std::set<std::int64_t> still;
        for (const std::int64_t i : output.detail->failing) still.insert(i / rows->second.width);
        // What is not compared any more (of a query without keys nothing is asked) accounts for nothing.
        for (const std::int64_t i : rows->second.failing)
          if (static_cast<std::size_t>(i) < output.detail->share.size() && std::isnan(output.detail->share[static_cast<std::size_t>(i)]))
            still.insert(i / rows->second.width);
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
    if (++count <= shown) some += (some.empty() ? "row " : ", row ") + std::to_string(token) + ": " + words[nearest(numbers)];
  Explanation explanation{std::string(fault.id),
                          std::string(fault.summary) + " (" + some + (more.size() > shown ? "..." : "") + ")" + meaning};
  for (const auto& [name, rows] : outputs) explanation.outputs.push_back(name);
  explanation.complete = true;
  return explanation;
}

}  // namespace dodona::oracle
