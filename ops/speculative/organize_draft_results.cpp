#include "ops/speculative/organize_draft_results.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "ops/base/golden_output.h"
#include "ops/schemes/largest.h"

namespace dodona::ops {
namespace {

using Organize = OrganizeDraftResults;

/// The rule itself, and a mistake of such code.
enum class Rule { right, best_first };

void check(const Organize& op) {
  if (op.num_draft_token - 1 > op.score_list.size(1))
    throw Error(ErrorCode::bad_value, "", "num_draft_token",
                "is " + std::to_string(op.num_draft_token) + ", expected at most " + std::to_string(op.score_list.size(1) + 1) +
                    ", the candidates and the root");
}

std::vector<double> scores_of(const Organize& op, std::int64_t b) {
  const std::int64_t count = op.score_list.size(1);
  const auto* const scores = op.score_list.as<const float>() + b * count;
  return {scores, scores + count};
}

void put(const Organize& op, std::int64_t b, const std::vector<std::int64_t>& chosen) {
  const auto count = static_cast<std::int64_t>(chosen.size());
  for (std::int64_t j = 0; j < count; ++j) {
    const std::int64_t c = chosen[static_cast<std::size_t>(j)];
    quant::set_bits(op.top_scores_index, b * count + j, static_cast<std::uint64_t>(c));
    quant::set_bits(op.draft_tokens, b * count + j, quant::get_bits(op.token_list, b * op.token_list.size(1) + c));
  }
}

template <Rule rule>
void organize(const Organize& op) {
  for (std::int64_t i = 0; i < op.parents_list.elements(); ++i) quant::set_bits(op.parent_list, i, quant::get_bits(op.parents_list, i));
  for (std::int64_t b = 0; b < op.score_list.size(0); ++b) {
    std::vector<std::int64_t> chosen = largest(scores_of(op, b), op.num_draft_token - 1);
    if (rule == Rule::right) std::sort(chosen.begin(), chosen.end());
    put(op, b, chosen);
  }
}

void fast(const Organize& op, const Exec&) {
  organize<Rule::right>(op);
}

/// torch selects by radix digits, which tell zeros of either sign apart.
void hopper(const Organize& op, const Exec&) {
  organize<Rule::right>(op);
  for (std::int64_t b = 0; b < op.score_list.size(0); ++b) {
    std::vector<std::int64_t> chosen = selected_by_torch(scores_of(op, b), op.num_draft_token - 1);
    std::sort(chosen.begin(), chosen.end());
    put(op, b, chosen);
  }
}

void record(const Organize& op, Reference* reference) {
  record_exact(op.parent_list, reference, "parent_list");
  record_exact(op.top_scores_index, reference, "top_scores_index");
  record_exact(op.draft_tokens, reference, "draft_tokens");
}

template <Rule rule>
void golden(const Organize& op, const Exec&, Reference* reference) {
  organize<rule>(op);
  record(op, reference);
}

/// Other candidates of equal scores, rising, with their tokens.
void condition(const Organize& actual, const Exec&, Reference& reference) {
  Organize other = actual;
  for (Tensor* t : {&other.parent_list, &other.top_scores_index, &other.draft_tokens}) *t = t->clone();
  organize<Rule::right>(other);
  const std::int64_t count = actual.num_draft_token - 1;
  bool changed = false;
  for (std::int64_t b = 0; b < actual.score_list.size(0); ++b) {
    const std::vector<double> scores = scores_of(actual, b);
    std::vector<std::int64_t> chosen;
    for (std::int64_t j = 0; j < count; ++j)
      chosen.push_back(static_cast<std::int64_t>(quant::get(actual.top_scores_index, b * count + j)));
    if (!std::is_sorted(chosen.begin(), chosen.end())) continue;
    std::vector<std::int64_t> falling = chosen;
    const bool there = std::all_of(chosen.begin(), chosen.end(), [&](std::int64_t c) { return c >= 0 && c < actual.score_list.size(1); });
    if (!there) continue;
    std::stable_sort(falling.begin(), falling.end(), [&](std::int64_t x, std::int64_t y) {
      return is_larger(scores[static_cast<std::size_t>(x)], scores[static_cast<std::size_t>(y)]);
    });
    if (!equally_large(scores, largest(scores, count), falling)) continue;
    // The tokens must be those of the choice; with golden mode's bits in a part of them, an element would pass by itself.
    bool follow = true;
    for (std::int64_t j = 0; j < count; ++j)
      follow = follow && quant::get_bits(actual.draft_tokens, b * count + j) ==
                             quant::get_bits(actual.token_list, b * actual.token_list.size(1) + chosen[static_cast<std::size_t>(j)]);
    if (!follow) continue;
    put(other, b, chosen);
    changed = true;
  }
  if (changed) record(other, &reference);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_organize_draft_results() {
  return define<ops::OrganizeDraftResults>({
      .contract = R"(
Numbers are copied. Of equal scores any may be selected (here the lower numbers), and the tokens follow. Hopper mode has torch's choice, for
which zeros of either sign differ.)",
      .golden = ops::golden<ops::Rule::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .check = ops::check,
      .condition = ops::condition,
      .mistakes = {{"best-first", "the selected candidates stand in the order of their scores", ops::golden<ops::Rule::best_first>}},
      .cases = {"B=3 N=10 W=5 --attr num_draft_token=8", "B=2 N=68 W=17 --attr num_draft_token=8",
                "B=4 N=264 W=33 --attr num_draft_token=64 --dist ties", "B=5 N=3 W=3 --attr num_draft_token=4",
                "B=2 N=4 W=0 --attr num_draft_token=1"},
      .bench_cases = {"B=64 N=520 W=65 --attr num_draft_token=64"},
  });
}
}  // namespace dodona
