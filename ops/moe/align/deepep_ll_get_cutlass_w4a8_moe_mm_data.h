#pragma once

#include <limits>

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Sizes of the grouped products of cutlass_w4a8_moe_mm over what a low-latency dispatch gave: problem_sizes1[e] = (2n, masked_m[e], k),
/// problem_sizes2[e] = (k, masked_m[e], n). Source: sglang `ep_moe/kernels.py`, `deepep_ll_get_cutlass_w4a8_moe_mm_data` (Triton).
struct DeepepLlGetCutlassW4a8MoeMmData {
  Tensor masked_m, problem_sizes1, problem_sizes2;
  std::int64_t num_experts = 0, n = 0, k = 0;

  static constexpr OpInfo info{"deepep_ll_get_cutlass_w4a8_moe_mm_data", Category::moe, Source::triton};
  void describe(auto& op) {
    op.signature("masked_m, problem_sizes1, problem_sizes2, num_experts, n, k");
    op.in("masked_m", masked_m, {i32}, "num_experts")
        .layout(Layout::contiguous)
        .role(Role::positions, "1024")
        .may_stray()
        .doc("rows of each expert");
    op.attr("num_experts", num_experts, between(1, 1 << 20)).required().doc("experts of the grouped products");
    op.attr("n", n, between(0, (1 << 30) - 1)).required().doc("intermediate size I");
    op.attr("k", k, between(0, std::numeric_limits<std::int32_t>::max())).required().doc("hidden size H");
    op.out("problem_sizes1", problem_sizes1, {i32}, "num_experts 3")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("(N, M, K) of gate and up");
    op.out("problem_sizes2", problem_sizes2, {i32}, "num_experts 3")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("(N, M, K) of down");
  }
};

}  // namespace dodona::ops
