#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// output_tensor[t] = sum over the slots of token t of recv_topk_weight * input_tensor[input_index]: what unpermutes the rows of DeepGEMM's
/// contiguous products. Slots of no expert of this rank add nothing.
/// Source: sglang `ep_moe/kernels.py`, `ep_gather` (Triton).
struct EpGather {
  Tensor input_tensor, recv_topk_ids, recv_topk_weight, input_index, output_tensor;

  static constexpr OpInfo info{"ep_gather", Category::moe, Source::triton};
  void describe(auto& op) {
    op.signature("input_tensor, recv_topk_ids, recv_topk_weight, input_index, output_tensor");
    op.in("input_tensor", input_tensor, {bf16, f16}, "R D").layout(Layout::contiguous).doc("rows sorted by expert");
    op.in("recv_topk_ids", recv_topk_ids, {i64, i32}, "T topk")
        .layout(Layout::contiguous)
        .role(Role::expert_ids, "topk+1")
        .may_stray()
        .doc("local experts of each token; negative: of another rank");
    op.in("recv_topk_weight", recv_topk_weight, {f32}, "T topk").layout(Layout::contiguous).doc("their weights");
    op.in("input_index", input_index, {i64, i32}, "T topk")
        .layout(Layout::contiguous)
        .role(Role::indices, "R")
        .may_stray()
        .doc("row of each slot, as ep_scatter gives it; of slots of no expert here unread");
    op.out("output_tensor", output_tensor, same_as("input_tensor"), "T D").layout(Layout::contiguous).doc("one row per token");
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
