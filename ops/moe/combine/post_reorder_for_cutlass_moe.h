#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// output[t] = routed_scaling_factor * sum over the slots of token t of topk_weights * down_output[src2dst]: what unpermutes the rows of
/// the W4A8 products. Slots whose id is num_local_experts add nothing. Source: sglang `ep_moe/kernels.py`, `post_reorder_for_cutlass_moe`
/// (Triton).
struct PostReorderForCutlassMoe {
  Tensor down_output, src2dst, topk_ids, topk_weights, output;
  std::int64_t num_local_experts = 0;
  double routed_scaling_factor = 1.0;

  static constexpr OpInfo info{"post_reorder_for_cutlass_moe", Category::moe, Source::triton};
  void describe(auto& op) {
    op.signature(
        "down_output, output, src2dst, topk_ids, topk_weights, num_local_experts, topk=, num_tokens=, hidden_size=, routed_scaling_factor");
    op.in("down_output", down_output, {bf16, f16}, "R D").layout(Layout::contiguous).doc("rows sorted by expert");
    op.in("src2dst", src2dst, {i32, i64}, "T topk")
        .layout(Layout::contiguous)
        .role(Role::indices, "R")
        .may_stray()
        .doc("row of each slot; of slots of no expert here unread");
    op.in("topk_ids", topk_ids, {i32, i64}, "T topk")
        .layout(Layout::contiguous)
        .role(Role::expert_ids, "topk+1")
        .may_stray()
        .doc("experts of each token; num_local_experts: none here");
    op.in("topk_weights", topk_weights, {f32}, "T topk").layout(Layout::contiguous).doc("their weights");
    op.attr("num_local_experts", num_local_experts, between(0, 1 << 20)).required().doc("the id of no expert");
    op.attr("routed_scaling_factor", routed_scaling_factor).required().doc("factor of the sums, narrowed to fp32");
    op.out("output", output, same_as("down_output"), "T D").layout(Layout::contiguous).doc("one row per token");
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
