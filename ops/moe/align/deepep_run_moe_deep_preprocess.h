#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Where received tokens go when they are sorted by the experts of this rank: rows of slots, and where each expert's rows begin. Slots of
/// no expert here (-1) sort before all others and get negative rows.
/// Source: sglang `ep_moe/kernels.py`, `deepep_run_moe_deep_preprocess` (torch's stable sort and the Triton kernel
/// `deepep_compute_src2dst_triton_kernel`).
struct DeepepRunMoeDeepPreprocess {
  Tensor topk_ids, reorder_topk_ids, src2dst, seg_indptr;
  std::int64_t num_experts = 0;

  static constexpr OpInfo info{"deepep_run_moe_deep_preprocess", Category::moe, Source::triton};
  void describe(auto& op) {
    op.in("topk_ids", topk_ids, {i64, i32}, "T topk")
        .layout(Layout::contiguous)
        .role(Role::expert_ids, "num_experts")
        .may_stray()
        .doc("experts of this rank that each token chose, -1 for none");
    op.attr("num_experts", num_experts, between(1, 1 << 20)).required().doc("experts of this rank");
    op.out("reorder_topk_ids", reorder_topk_ids, same_as("topk_ids"), "T*topk")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .padded()
        .doc("expert of each row; upstream returns as many as there are rows, here what stands behind them is unspecified");
    op.out("src2dst", src2dst, {i64}, "T*topk")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("row of each slot; the n slots of no expert get -n to -1");
    op.out("seg_indptr", seg_indptr, {i64}, "num_experts+1")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("first row of each expert; the total");
  }
};

}  // namespace dodona::ops
