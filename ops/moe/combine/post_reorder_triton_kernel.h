#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// output[t] = sum over the slots of token t of topk_weights * down_output[src2dst], in the type of the rows: what unpermutes the rows of
/// DeepGEMM's masked products. Slots whose id is negative add nothing.
/// Source: sglang `ep_moe/kernels.py`, `post_reorder_triton_kernel` (Triton).
struct PostReorderTritonKernel {
  Tensor down_output, src2dst, topk_ids, topk_weights, output;

  static constexpr OpInfo info{"post_reorder_triton_kernel", Category::moe, Source::triton};
  void describe(auto& op) {
    op.signature("down_output, output, src2dst, topk_ids, topk_weights, topk=, hidden_size=");
    op.in("down_output", down_output, {bf16, f16}, "R D").layout(Layout::contiguous).doc("rows sorted by expert");
    op.in("src2dst", src2dst, {i32, i64}, "T topk")
        .layout(Layout::contiguous)
        .role(Role::indices, "R")
        .may_stray()
        .doc("row of each slot; of slots of no expert here unread");
    op.in("topk_ids", topk_ids, {i32, i64}, "T topk")
        .layout(Layout::contiguous)
        .role(Role::expert_ids, "R+topk")
        .may_stray()
        .doc("local experts of each token; negative: none here");
    op.in("topk_weights", topk_weights, {f32}, "T topk").layout(Layout::contiguous).doc("their weights");
    op.out("output", output, same_as("down_output"), "T D").layout(Layout::contiguous).doc("one row per token");
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
