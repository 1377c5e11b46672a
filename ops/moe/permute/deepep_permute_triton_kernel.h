#pragma once

#include "ops/rows/copies/permuted_rows.h"

namespace dodona::ops {

using enum DType;

/// gateup_input[src2dst[t, k]] = input[t] for every slot that has a row: what permutes the tokens that DeepEP's normal mode received.
/// Source: sglang `ep_moe/kernels.py`, `deepep_permute_triton_kernel` (Triton).
struct DeepepPermuteTritonKernel {
  Tensor input, gateup_input, src2dst, topk_ids;

  static constexpr OpInfo info{"deepep_permute_triton_kernel", Category::moe, Source::triton};
  void describe(auto& op) {
    op.signature("input, gateup_input, src2dst, topk_ids, a1_scales=, topk=, hidden_size=, BLOCK_SIZE=");
    op.in("input", input, {bf16, f16, f32, f8_e4m3}, "T H").layout(Layout::contiguous).doc("received tokens");
    op.in("src2dst", src2dst, {i64, i32}, "T topk")
        .layout(Layout::contiguous)
        .role(Role::indices, "R")
        .may_stray()
        .doc("row of each slot, no row twice; negative: none");
    op.in("topk_ids", topk_ids, {i64, i32}, "T topk")
        .layout(Layout::contiguous)
        .role(Role::expert_ids, "topk+1")
        .may_stray()
        .doc("experts of each token: src2dst says all, they are not read");
    describe_permuted_rows(op, gateup_input, {bf16, f16, f8_e4m3});
  }
};

}  // namespace dodona::ops
