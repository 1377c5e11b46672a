#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// output[t] = sum over the slots of token t of topk_weights * down_output[src2dst], in the type of the rows. Slots whose row is negative
/// add nothing. Source: sglang `ep_moe/kernels.py`, `deepep_post_reorder_triton_kernel` (Triton).
struct DeepepPostReorderTritonKernel {
  Tensor down_output, src2dst, topk_ids, topk_weights, output;

  static constexpr OpInfo info{"deepep_post_reorder_triton_kernel", Category::moe, Source::triton};
  void describe(auto& op) {
    op.signature("down_output, output, src2dst, topk_ids, topk_weights, topk=, hidden_size=");
    op.in("down_output", down_output, {bf16, f16}, "R D").layout(Layout::contiguous).doc("rows sorted by expert");
    op.in("src2dst", src2dst, {i32, i64}, "T topk")
        .layout(Layout::contiguous)
        .role(Role::indices, "R")
        .may_stray()
        .doc("row of each slot; negative: none");
    op.in("topk_ids", topk_ids, {i32, i64}, "T topk")
        .layout(Layout::contiguous)
        .role(Role::expert_ids, "topk+1")
        .may_stray()
        .on_request()
        .doc("experts of each token; unread");
    op.in("topk_weights", topk_weights, {f32}, "T topk").layout(Layout::contiguous).doc("their weights");
    op.out("output", output, same_as("down_output"), "T D").layout(Layout::contiguous).doc("one row per token");
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
