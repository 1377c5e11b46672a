#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Tokens of all ranks, sent to the ranks that have any of their experts, each once: what every rank receives, rank by rank (expert e lives
/// on rank e / (E / R)). A rank with fewer tokens than T ends in tokens that choose nobody.
/// Source: DeepEP `Buffer.dispatch` (normal mode).
struct DeepepDispatch {
  Tensor x, x_scales, topk_idx, topk_weights, recv_x, recv_x_scales, recv_topk_idx, recv_topk_weights, num_recv_tokens_per_expert,
      recv_src_idx, rank_prefix_matrix;
  std::int64_t num_experts = 0, expert_alignment = 1;

  static constexpr OpInfo info{"deepep_dispatch", Category::moe, Source::torch};
  void describe(auto& op) {
    op.in("x", x, {bf16, f8_e4m3}, "R T H").layout(Layout::contiguous).doc("tokens of each rank, sent as they are");
    op.in("x_scales", x_scales, {f32, i32}, "R T Hs")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .optional()
        .doc("their scales: of e4m3 one for 128 codes (Hs = H/128), or words of four exponents (Hs = H/512)");
    op.in("topk_idx", topk_idx, {i64}, "R T topk")
        .layout(Layout::contiguous)
        .role(Role::expert_ids, "num_experts")
        .may_stray()
        .doc("experts chosen by each token, -1 for none");
    op.in("topk_weights", topk_weights, {f32}, "R T topk").layout(Layout::contiguous).doc("their weights");
    op.attr("num_experts", num_experts, between(1, 1 << 16)).required().doc("experts E of all ranks, a multiple of R");
    op.attr("expert_alignment", expert_alignment, between(1, 1 << 16)).doc("num_recv_tokens_per_expert is rounded up to multiples of it");
    op.out("recv_x", recv_x, same_as("x"), "R R*T H")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .padded()
        .doc("what each rank receives, by the rank that sent it and in the order there; upstream's num_worst_tokens is R*T here");
    op.out("recv_x_scales", recv_x_scales, same_as("x_scales"), "R R*T Hs")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .padded()
        .optional()
        .doc("theirs, made where x_scales is given");
    op.out("recv_topk_idx", recv_topk_idx, {i64}, "R R*T topk")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("experts of received tokens, counted from the rank's first; -1 for those of other ranks and behind the last token");
    op.out("recv_topk_weights", recv_topk_weights, {f32}, "R R*T topk")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .padded()
        .doc("weights of those experts; 0 for those of other ranks");
    op.out("num_recv_tokens_per_expert", num_recv_tokens_per_expert, {i32}, "num_experts")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("slots that name each expert, rounded up");
    op.out("recv_src_idx", recv_src_idx, {i32}, "R R*T")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .padded()
        .doc("token of each row on the rank that it came from");
    op.out("rank_prefix_matrix", rank_prefix_matrix, {i32}, "R R")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("element (r, d): how many tokens rank d receives from ranks 0 to r");
    op.symbol("R", {.minimum = 1});
    op.symbol("topk", {.maximum = 32});
  }
};

}  // namespace dodona::ops
