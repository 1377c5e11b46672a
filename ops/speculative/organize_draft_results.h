#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// A draft's candidates become its tree: the D - 1 best of all steps' scores, D = num_draft_token, in the order of their numbers.
/// Upstream's lists stand here as what it makes of them: concatenated.
///   top_scores_index = the numbers of the best, rising;  draft_tokens = their tokens;  parent_list = parents_list as it is
/// A candidate scores no more than its parent and has a higher number, so that parents are selected with their children, unless equal
/// scores (a probability of 1, or products that underflow) let a child go first. Source: SGLang `organize_draft_results`.
struct OrganizeDraftResults {
  Tensor score_list, token_list, parents_list, parent_list, top_scores_index, draft_tokens;
  std::int64_t num_draft_token = 0;

  static constexpr OpInfo info{"organize_draft_results", Category::speculative, Source::torch};
  void describe(auto& op) {
    op.signature("score_list, token_list, parents_list, num_draft_token");
    op.in("score_list", score_list, {f32}, "B N")
        .layout(Layout::contiguous)
        .role(Role::probs)
        .doc("tree_scores of all steps, N = k + (S-1) k^2");
    op.in("token_list", token_list, {i64}, "B N").layout(Layout::contiguous).doc("tree_tokens of all steps");
    op.in("parents_list", parents_list, {i64}, "B W")
        .layout(Layout::contiguous)
        .doc("tree_parents of all steps but the last, W = k (S-1) + 1, or 0 columns");
    op.attr("num_draft_token", num_draft_token, between(1, 1 << 16)).required().doc("D, the root counted; D - 1 at most N");
    op.out("parent_list", parent_list, {i64}, "B W").judged(Judge::exact).doc("parents_list");
    op.out("top_scores_index", top_scores_index, {i64}, "B num_draft_token-1").judged(Judge::top_k).doc("candidates, rising");
    op.out("draft_tokens", draft_tokens, {i64}, "B num_draft_token-1").judged(Judge::top_k).doc("their tokens");
    op.rows_independent("B");
  }
};

}  // namespace dodona::ops
