#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// One step of a draft's beam, k = topk wide. Step 0 takes what the extend step gave: topk_p, topk_index [B, k] of each request's last
/// token; every beam is one of them, and hidden states are repeated k times. A later step i takes those of every beam, [B*k, k]: candidates
/// e[b, r, c] = scores[b, r] * topk_p[b*k + r, c], of which the k largest go on.
///   input_ids = the tokens that go on;  out_hidden_states = of each, the state of the beam that it comes from;  out_scores = their e
///   tree_scores = e [B, k, k] (step 0: topk_p [B, 1, k]);  tree_tokens = topk_index by request
///   tree_parents = numbers of those that go on among all candidates, k + k^2 (i-1) + r*k + c (step 0: -1, 0 .. k-1)
/// Source: SGLang `select_top_k_tokens`.
struct SelectTopKTokens {
  Tensor topk_p, topk_index, hidden_states, scores;
  Tensor input_ids, out_hidden_states, out_scores, tree_scores, tree_tokens, tree_parents;
  std::int64_t i = 0, topk = 0;

  static constexpr OpInfo info{"select_top_k_tokens", Category::speculative, Source::torch};
  void describe(auto& op) {
    op.signature("i, topk_p, topk_index, hidden_states, scores, topk");
    op.attr("i", i, between(0, 1 << 15)).required().doc("step");
    op.in("topk_p", topk_p, {f32}, "P topk").layout(Layout::contiguous).role(Role::probs).doc("P = B in step 0, B*topk later");
    op.in("topk_index", topk_index, {i64}, "P topk").layout(Layout::contiguous).doc("tokens of topk_p");
    op.in("hidden_states", hidden_states, {bf16, f16, f32}, "Ph H").layout(Layout::contiguous).doc("of each row of topk_p, or no rows");
    op.in("scores", scores, {f32}, "B topk")
        .layout(Layout::contiguous)
        .role(Role::probs)
        .on_request()
        .doc("out_scores of the step before; from step 1 on");
    op.attr("topk", topk, between(1, 1 << 12)).required().doc("k, beams of a request");
    op.out("input_ids", input_ids, {i64}, "B*topk").judged(Judge::top_k).doc("tokens that go on, best first");
    op.out("out_hidden_states", out_hidden_states, same_as("hidden_states"), "Qh H").doc("a row for each, or none");
    op.out("out_scores", out_scores, {f32}, "B topk").judged(Judge::top_k).doc("falling");
    op.out("tree_scores", tree_scores, {f32}, "B M topk").doc("all candidates; M = 1 in step 0, topk later");
    op.out("tree_tokens", tree_tokens, {i64}, "B M*topk").judged(Judge::exact).doc("their tokens");
    op.out("tree_parents", tree_parents, {i64}, "B W").judged(Judge::top_k).doc("W = topk + 1 in step 0, topk later");
  }

  bool first() const { return i == 0; }
  std::int64_t requests() const { return first() ? topk_p.size(0) : topk_p.size(0) / topk; }
};

}  // namespace dodona::ops
