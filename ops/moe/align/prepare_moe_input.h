#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// What grouped GEMMs need to work on tokens sorted by expert. With c[e] the number of ids equal to e:
///   problem_sizes1[e] = (c[e], 2n, k), problem_sizes2[e] = (c[e], k, n)
///   expert_offsets[e] = sum of c below e, blockscale_offsets[e] = sum of align(c, 128) below e
///   every flat id i takes a row d of its expert e, expert_offsets[e] <= d < expert_offsets[e+1]:
///   output_permutation[i] = d, input_permutation[d] = i / topk, the token
/// Ids outside [0, num_experts) take no row: their output_permutation and the tail of input_permutation are unspecified.
/// Source: sgl-kernel `prepare_moe_input`.
struct PrepareMoeInput {
  Tensor topk_ids, expert_offsets, problem_sizes1, problem_sizes2, input_permutation, output_permutation, blockscale_offsets;
  std::int64_t num_experts = 0, n = 0, k = 0;
  bool with_blockscale_offsets = false;

  static constexpr OpInfo info{"prepare_moe_input", Category::moe, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature(
        "topk_ids, expert_offsets, problem_sizes1, problem_sizes2, input_permutation, output_permutation, num_experts, n, k, "
        "blockscale_offsets");
    op.in("topk_ids", topk_ids, {i32}, "M topk")
        .role(Role::expert_ids, "num_experts")
        .may_stray()
        .doc("experts chosen by each token; ids of no expert are skipped");
    op.attr("num_experts", num_experts, between(1, 1 << 20)).required().doc("experts of the grouped GEMMs");
    op.attr("n", n, between(0, (1 << 30) - 1)).required().doc("intermediate size I");
    op.attr("k", k, between(0, std::numeric_limits<std::int32_t>::max())).required().doc("hidden size H");
    op.attr("blockscale_offsets", with_blockscale_offsets).doc("makes blockscale_offsets, which NVFP4 needs");
    op.out("expert_offsets", expert_offsets, {i32}, "num_experts+1").layout(Layout::contiguous).doc("first row of each expert; the total");
    op.out("problem_sizes1", problem_sizes1, {i32}, "num_experts 3").layout(Layout::contiguous).doc("(M, N, K) of gate and up");
    op.out("problem_sizes2", problem_sizes2, {i32}, "num_experts 3").layout(Layout::contiguous).doc("(M, N, K) of down");
    op.out("input_permutation", input_permutation, {i32}, "M*topk")
        .layout(Layout::contiguous)
        .judged(Judge::grouping)
        .doc("token of each sorted row; the order within an expert is open");
    op.out("output_permutation", output_permutation, {i32}, "M*topk")
        .layout(Layout::contiguous)
        .judged(Judge::grouping)
        .doc("sorted row of each flat id: what input_permutation undoes");
    op.out("blockscale_offsets", blockscale_offsets, {i32}, "num_experts+1")
        .layout(Layout::contiguous)
        .when("blockscale_offsets")
        .doc("as expert_offsets, with every expert's rows padded to a multiple of 128");
  }

  std::int64_t topk() const { return topk_ids.size(1); }
  bool is_expert(std::int64_t id) const { return id >= 0 && id < num_experts; }
};

}  // namespace dodona::ops
