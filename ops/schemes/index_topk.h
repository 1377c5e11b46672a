// What the ops share that choose the 2048 positions with the largest scores of sparse attention's indexer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Positions that are chosen, and scores of upstream's threshold bin that it can hold.
inline constexpr std::int64_t index_topk = 2048, index_topk_candidates = 16384;

/// One row of a call.
struct IndexRow {
  const float* scores;        ///< from its start on
  std::int64_t length;        ///< of them; none is read unless there are more than index_topk
  std::int64_t start;         ///< column of the first
  const std::int32_t* table;  ///< what stands for a position, or nullptr: the position plus `offset`
  std::int32_t offset;

  bool chooses() const { return length > index_topk; }
  std::int32_t entry(std::int64_t position) const {
    if (table != nullptr) return table[position];
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(position) + static_cast<std::uint32_t>(offset));
  }
};

/// Arguments that all of them have.
struct IndexTopkCall {
  Tensor score, lengths, row_starts;
  std::int64_t topk = index_topk;

  void describe_scores(auto& op) {
    op.in("score", score, {f32}, "B L").role(Role::logits).doc("scores of every position; rows may be strided");
    op.in("lengths", lengths, {i32}, "B")
        .layout(Layout::contiguous)
        .role(Role::lengths, "L+1")
        .may_stray()
        .doc("positions of each row; below 1: none. Only rows of more than 2048 are read, and must lie within score");
  }
  void describe_topk(auto& op) {
    op.in("row_starts", row_starts, {i32}, "B")
        .layout(Layout::contiguous)
        .role(Role::positions, "L")
        .may_stray()
        .on_request()
        .kin("a choice of the columns at which the row still ends within score")
        .doc("column of each row's first position; 0 without it");
    op.attr("topk", topk, between(index_topk, index_topk)).doc("positions that are chosen: upstream has no other number");
  }
  /// Row b without what its op says of entries.
  IndexRow row(std::int64_t b) const {
    const std::int64_t start = row_starts.defined() ? row_starts.as<const std::int32_t>()[b] : 0;
    return {score.as<const float>() + b * score.stride(0) + start, lengths.as<const std::int32_t>()[b], start, nullptr, 0};
  }
};

/// Throws Error where a row that is read does not lie within score.
void check_index_scores(const IndexTopkCall& op);
void make_row_starts(const IndexTopkCall& op, std::uint64_t seed);

/// The rule itself, and mistakes of such kernels.
enum class IndexRule {
  right,
  by_magnitude,     ///< scores are compared without their signs
  start_left_out,   ///< the scores that are compared begin in column 0
  padded_by_zeros,  ///< behind a short row stands 0
};

/// What a call writes.
struct IndexTopkOutput {
  Tensor tensor;
  std::string_view name;
};

void index_topk_golden(const std::vector<IndexRow>& rows, const IndexTopkOutput& out, IndexRule rule, Reference* reference);
void index_topk_fast(const std::vector<IndexRow>& rows, const Tensor& out, const Exec& exec);
void index_topk_condition(const std::vector<IndexRow>& rows, const IndexTopkOutput& actual, Reference& reference);
/// Whether some row has more scores in the threshold bin of upstream's first pass than it looks at.
bool more_than_candidates(const IndexRow& row);
/// Whether the row of `actual` is what upstream makes of too many candidates.
bool explained_by_candidates(const IndexRow& row, const std::int32_t* actual);

extern const std::string index_topk_contract;

template <class O, IndexRule rule>
void index_topk_golden_of(const O& op, const Exec&, Reference* reference) {
  index_topk_golden(op.rows(), op.output(), rule, reference);
}
template <class O>
void index_topk_fast_of(const O& op, const Exec& exec) {
  index_topk_fast(op.rows(), op.output().tensor, exec);
}
template <class O>
void index_topk_condition_of(const O& actual, const Exec&, Reference& reference) {
  index_topk_condition(actual.rows(), actual.output(), reference);
}
template <class O>
bool index_topk_explains(const O& actual, std::string_view, std::int64_t linear) {
  const std::int64_t b = linear / index_topk;
  const Tensor output = actual.output().tensor;
  return explained_by_candidates(actual.rows()[static_cast<std::size_t>(b)], output.as<const std::int32_t>() + b * index_topk);
}
template <class O>
std::optional<Refusal> index_topk_unsupported(const O& op, Mode mode) {
  if (!of_a_gpu(mode)) return std::nullopt;
  for (const IndexRow& row : op.rows())
    if (more_than_candidates(row))
      return Refusal{
          "score",
          "has more than 16384 scores in the bin of the 2048th largest, of which the kernel looks at those that come first in a race"};
  return std::nullopt;
}

/// The op: `O` has `rows()` and `output()`.
template <class O>
// NOLINTBEGIN(performance-unnecessary-value-param): they are moved
Implementation<O> index_topk_op(const std::string& contract, void (*check)(const O&), std::vector<std::string> cases,
                                std::vector<std::string> bench_cases) {  // NOLINTEND(performance-unnecessary-value-param)
  return {
      .contract = contract + index_topk_contract,
      .golden = index_topk_golden_of<O, IndexRule::right>,
      .fast = index_topk_fast_of<O>,
      .hopper = index_topk_fast_of<O>,
      .unsupported = index_topk_unsupported<O>,
      .make_inputs =
          [](O& op, std::uint64_t seed) {
            if (op.row_starts.defined()) make_row_starts(op, seed);
          },
      .check = check,
      .condition = index_topk_condition_of<O>,
      .defects = {{"candidates-beyond-16384", O::output_name,
                   "of the scores that share their top eight bits, as fp16, with the 2048th largest, only 16384 are looked at",
                   index_topk_explains<O>}},
      .mistakes = {{"by-magnitude", "scores are compared without their signs", index_topk_golden_of<O, IndexRule::by_magnitude>},
                   {"start-left-out", "the scores that are compared begin in column 0", index_topk_golden_of<O, IndexRule::start_left_out>},
                   {"padded-by-zeros", "behind the positions of a short row stands 0 instead of -1",
                    index_topk_golden_of<O, IndexRule::padded_by_zeros>}},
      .customary = {{O::output_name, CustomaryKind::sorted, 0, 0,
                     "sgl-kernel/tests/test_topk.py (up to 5 positions may have other values)"}},
      .cases = std::move(cases),
      .bench_cases = std::move(bench_cases),
  };
}

}  // namespace dodona::ops
