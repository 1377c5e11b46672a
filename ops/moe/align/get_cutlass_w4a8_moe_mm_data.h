#pragma once

#include <limits>

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Sizes and offsets of the grouped products of cutlass_w4a8_moe_mm, which has the weights as the first operand. With c[e] the number of
/// ids equal to e:
///   problem_sizes1[e] = (2n, c[e], k), problem_sizes2[e] = (k, c[e], n): (N, M, K), unlike prepare_moe_input's (M, N, K)
///   expert_offsets[e] = sum of c below e
/// Ids outside [0, num_experts) are not counted: num_experts itself stands for experts of other ranks. The permutations are taken and left
/// as they are: callers sort the ids themselves.
/// Source: sgl-kernel `get_cutlass_w4a8_moe_mm_data`.
struct GetCutlassW4a8MoeMmData {
  Tensor topk_ids, expert_offsets, problem_sizes1, problem_sizes2, input_permutation, output_permutation;
  std::int64_t num_experts = 0, n = 0, k = 0;

  static constexpr OpInfo info{"get_cutlass_w4a8_moe_mm_data", Category::moe, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("topk_ids, expert_offsets, problem_sizes1, problem_sizes2, input_permutation, output_permutation, num_experts, n, k");
    op.in("topk_ids", topk_ids, {i32}, "M topk")
        .layout(Layout::contiguous)
        .role(Role::expert_ids, "num_experts")
        .may_stray()
        .doc("experts chosen by each token; ids of no expert are not counted");
    op.attr("num_experts", num_experts, between(1, 1 << 20)).required().doc("experts of the grouped products");
    op.attr("n", n, between(0, (1 << 30) - 1)).required().doc("intermediate size I");
    op.attr("k", k, between(0, std::numeric_limits<std::int32_t>::max())).required().doc("hidden size H");
    op.out("expert_offsets", expert_offsets, {i32}, "num_experts+1").layout(Layout::contiguous).doc("first row of each expert; the total");
    op.out("problem_sizes1", problem_sizes1, {i32}, "num_experts 3").layout(Layout::contiguous).doc("(N, M, K) of gate and up");
    op.out("problem_sizes2", problem_sizes2, {i32}, "num_experts 3").layout(Layout::contiguous).doc("(N, M, K) of down");
    op.inout("input_permutation", input_permutation, {i32}, "M*topk").layout(Layout::contiguous).judged(Judge::exact).doc("left as it is");
    op.inout("output_permutation", output_permutation, {i32}, "M*topk")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("left as it is");
  }
};

}  // namespace dodona::ops
