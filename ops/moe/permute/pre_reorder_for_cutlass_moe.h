#pragma once

#include "ops/rows/copies/permuted_rows.h"

namespace dodona::ops {

using enum DType;

/// gateup_input[src2dst[t, k]] = input[t] / a1_scales, for every slot whose id is not num_local_experts: what permutes tokens for the W4A8
/// products. Source: sglang `ep_moe/kernels.py`, `pre_reorder_for_cutlass_moe` (Triton).
struct PreReorderForCutlassMoe {
  Tensor input, gateup_input, src2dst, topk_ids, a1_scales;
  std::int64_t num_local_experts = 0;

  static constexpr OpInfo info{"pre_reorder_for_cutlass_moe", Category::moe, Source::triton};
  void describe(auto& op) {
    op.signature("input, gateup_input, src2dst, topk_ids, a1_scales, num_local_experts, topk=, num_tokens=, hidden_size=");
    op.in("input", input, {bf16, f16, f32}, "T H").layout(Layout::contiguous).doc("tokens");
    op.in("src2dst", src2dst, {i32, i64}, "T topk")
        .layout(Layout::contiguous)
        .role(Role::indices, "R")
        .may_stray()
        .doc("row of each slot, no row twice; of slots of no expert here unread");
    op.in("topk_ids", topk_ids, {i32, i64}, "T topk")
        .layout(Layout::contiguous)
        .role(Role::expert_ids, "topk+1")
        .may_stray()
        .doc("experts of each token; num_local_experts: none here");
    op.in("a1_scales", a1_scales, {f32}, "1").role(Role::scale).optional().doc("scale of all tokens; without it they are sent as they are");
    op.attr("num_local_experts", num_local_experts, between(0, 1 << 20)).required().doc("the id of no expert");
    describe_permuted_rows(op, gateup_input, {f8_e4m3, bf16, f16});
  }
};

}  // namespace dodona::ops
