#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// The row that each slot takes when tokens are sorted by expert, slots of one expert in their order; ids of no expert (num_local_experts)
/// sort behind all others. The name is upstream's. Source: sglang `ep_moe/kernels.py`, `cutlass_w4_run_moe_ep_preproess` (torch's stable
/// sort and the Triton kernel `compute_src2dst_triton_kernel`).
struct CutlassW4RunMoeEpPreproess {
  Tensor topk_ids, src2dst;

  static constexpr OpInfo info{"cutlass_w4_run_moe_ep_preproess", Category::moe, Source::triton};
  void describe(auto& op) {
    op.in("topk_ids", topk_ids, {i32, i64}, "T topk")
        .layout(Layout::contiguous)
        .role(Role::expert_ids, "topk+1")
        .may_stray()
        .doc("experts chosen by each token, whatever numbers they have");
    op.out("src2dst", src2dst, {i32}, "T*topk").layout(Layout::contiguous).judged(Judge::exact).doc("row of each slot");
  }
};

}  // namespace dodona::ops
