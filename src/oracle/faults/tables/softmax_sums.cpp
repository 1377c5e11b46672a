// Faults of what a softmax divides by: the sum of a part of a row, of terms that were not brought to the newest maximum, of all rows. From
// golden mode's exact numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "oracle/faults/rewritten.h"
#include "oracle/faults/softmax_rows.h"
#include "oracle/faults/tables/fault_tools.h"

namespace dodona::oracle {
namespace {

using namespace fault_tools;

/// `first 64`, `behind 64`, `last 64`: the sum is that of these columns; `whole 64`: of whole tiles; `restarted 64`: of the last tile;
/// `unscaled 64`: each tile's terms about the maximum as it was then; `tail 64`: the last tile's about none; `alone 64`: the first
/// columns make a row of their own, the others stay logits; `rows`: that of all rows; `across`: column j has row j's.
Values other_sums(Site s) {
  const auto call = softmax_of(s.call);
  if (!call) return {};
  Values values;
  for (const std::int64_t tile : {16, 32, 64, 128, 256, 512, 1024}) {
    if (tile >= call->columns) continue;
    for (const char* const how : {"first ", "behind ", "unscaled ", "tail ", "alone "}) values.emplace_back(how + std::to_string(tile));
    values.emplace_back((call->columns % tile == 0 ? "last " : "whole ") + std::to_string(tile));
    if (call->columns % tile == 0 && call->columns > 2 * tile) values.emplace_back("first " + std::to_string(call->columns - tile));
  }
  for (const std::int64_t parts : {2, 4, 8})
    if (call->columns % parts == 0) values.emplace_back("first " + std::to_string(call->columns / parts * (parts - 1)));
  if (call->logarithm) {
    std::erase_if(values, [](const AttrValue& value) { return std::get<std::string>(value).starts_with("alone"); });
    values.emplace_back(std::string("twice 0"));
  }
  if (call->rows >= 2) values.emplace_back(std::string("rows 0"));
  if (call->rows >= 2 && call->rows == call->columns && !call->logarithm) values.emplace_back(std::string("across 0"));
  std::set<std::string> seen;
  std::erase_if(values, [&](const AttrValue& value) { return !seen.insert(std::get<std::string>(value)).second; });
  return values;
}
double sum_of(const SoftmaxRow& row, const std::string& how, std::int64_t tile) {
  const auto columns = static_cast<std::int64_t>(row.weights.size());
  double sum = 0, running = -std::numeric_limits<double>::infinity();
  for (std::int64_t c = 0; c < columns; ++c) {
    const auto at = static_cast<std::size_t>(c);
    const bool in_tail = c >= (columns - 1) / tile * tile;
    if (how == "unscaled" && c % tile == 0)
      for (std::int64_t k = c; k < std::min(c + tile, columns); ++k) running = std::max(running, row.scores[static_cast<std::size_t>(k)]);
    if ((how == "first" && c >= tile) || (how == "behind" && c < tile) || (how == "last" && c < columns - tile) ||
        (how == "whole" && in_tail))
      continue;
    sum += how == "unscaled" ? std::exp(row.scores[at] - running) : how == "tail" && in_tail ? std::exp(row.scores[at]) : row.weights[at];
  }
  return sum;
}
GoldenRun with_other_sums(Site s) {
  GoldenRun run = s.call.golden;
  const Softmax call = *softmax_of(s.call);
  const std::string how = first_of(word(s));
  const std::int64_t tile = std::stoll(rest_of(word(s)));
  std::vector<SoftmaxRow> rows;
  double all = 0;
  for (std::int64_t r = 0; r < call.rows; ++r) {
    auto row = softmax_row(s.call, call, r);
    if (!row) return run;
    all += row->sum;
    rows.push_back(std::move(*row));
  }
  const ReferenceOutput& said = *s.call.golden.reference.find(call.probs);
  const Tensor& logits = *s.call.inputs.find(call.logits);
  std::vector<double> across;
  for (const SoftmaxRow& row : rows) {
    double sum = 0;
    for (std::size_t c = 0; c < row.scores.size() && how == "across"; ++c) sum += std::exp(row.scores[c] - rows[c].most);
    across.push_back(sum);
  }
  std::vector<double> exact = said.exact, slack = said.slack;
  for (std::int64_t r = 0; r < call.rows; ++r) {
    const SoftmaxRow& row = rows[static_cast<std::size_t>(r)];
    const double sum = how == "rows"                       ? all
                       : how == "across" || how == "twice" ? row.sum
                       : how == "alone"                    ? sum_of(row, "first", tile)
                                                           : sum_of(row, how, tile);
    double own_most = row.most;
    if (how == "alone") own_most = *std::max_element(row.scores.begin(), row.scores.begin() + tile);
    for (std::int64_t c = 0; c < call.columns; ++c) {
      const auto at = static_cast<std::size_t>(r * call.columns + c), column = static_cast<std::size_t>(c);
      double x = row.weights[column] / sum;
      if (how == "across") x = std::exp(row.scores[column] - rows[column].most) / across[column];
      if (how == "alone" && c >= tile) x = quant::get(logits, r * call.columns + c);
      // Terms that underflow about the row's own maximum may not do so about a part's.
      if (how == "alone" && c < tile && own_most < row.most)
        x = std::exp(row.scores[column] - own_most) / (sum * std::exp(row.most - own_most));
      constexpr double of_logarithms = 0x1p-18;
      if (call.logarithm) {
        const double log = std::log(sum), y = row.scores[column] - row.most - (how == "twice" ? std::log(log) : log);
        slack[at] += of_logarithms * (std::fabs(y) + std::fabs(said.exact[at]));
        exact[at] = y;
        continue;
      }
      slack[at] = said.exact[at] > 0 ? slack[at] * std::fabs(x) / said.exact[at] : slack[at];
      slack[at] += of_logarithms * std::fabs(x);
      exact[at] = x;
    }
  }
  put_numbers(run, call.probs, exact, slack);
  return run;
}
std::string other_sums_in_words(Site s) {
  const std::string how = first_of(word(s)), tile = rest_of(word(s)), of = softmax_of(s.call)->probs + ": ",
                    sum = of + "the sum that a row is divided by ";
  if (how == "twice") return of + "the logarithm of a row's sum is taken twice";
  if (how == "rows") return sum + "is that of all rows";
  if (how == "across") return of + "maxima and sums of rows are spread over the columns: column j has those of row j, another axis'";
  if (how == "unscaled")
    return sum + "is added up in tiles of " + tile + ", each about the maximum as it was then: it is not rescaled when that grows";
  if (how == "tail") return sum + "has the last tile of " + tile + " columns as exponentials of scores that are not shifted by the maximum";
  if (how == "alone")
    return of + "the first " + tile + " columns alone are exponentiated and divided by their own sum, the others stay as they are";
  if (how == "whole") return sum + "lacks the last partial tile of " + tile + " columns";
  if (how == "behind") return sum + "lacks the first " + tile + " columns";
  return sum + (how == "last" ? "is that of the last " + tile + " columns: it begins anew with each tile"
                              : "is that of the first " + tile + " columns alone");
}

constexpr std::array table{
    Fault{.id = "divided-by-another-sum",
          .summary = "rows of a softmax are divided by the sum of other terms than theirs",
          .strikes = call,
          .severity = fine,
          .applies = always,
          .variants = other_sums,
          .words = other_sums_in_words,
          .far = true,
          .rerun = with_other_sums},
};

}  // namespace

std::span<const Fault> softmax_sum_faults() {
  return table;
}

}  // namespace dodona::oracle
