#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// The rows of each token from all ranks that received it, summed where the token came from, without weights: what undoes the normal
/// dispatch. Source: DeepEP `Buffer.combine` (normal mode).
struct DeepepCombine {
  Tensor x, recv_src_idx, rank_prefix_matrix, is_token_in_rank, topk_weights, bias_0, bias_1, combined_x, combined_topk_weights;
  std::int64_t ranks_per_node = 0;

  static constexpr OpInfo info{"deepep_combine", Category::moe, Source::torch};
  void describe(auto& op) {
    op.in("x", x, {bf16}, "R S H").layout(Layout::contiguous).doc("rows of each rank, in the order in which it received them");
    op.in("is_token_in_rank", is_token_in_rank, {boolean}, "R T R")
        .layout(Layout::contiguous)
        .kin("a choice below 3 that is not 0, as long as the rank has a row left")
        .doc("whether a token went to a rank");
    op.in("recv_src_idx", recv_src_idx, {i32}, "R S")
        .layout(Layout::contiguous)
        .kin("as a dispatch makes it")
        .doc("token of each row on the rank that it came from");
    op.in("rank_prefix_matrix", rank_prefix_matrix, {i32}, "R R")
        .layout(Layout::contiguous)
        .kin("as a dispatch makes it")
        .doc("element (r, d): how many tokens rank d received from ranks 0 to r");
    op.in("topk_weights", topk_weights, {f32}, "R S topk")
        .layout(Layout::contiguous)
        .optional()
        .doc("weights of the rows, added up as they are");
    op.in("bias_0", bias_0, {bf16}, "R T H").layout(Layout::contiguous).on_request().doc("added to the sums");
    op.in("bias_1", bias_1, {bf16}, "R T H").layout(Layout::contiguous).on_request().doc("added to the sums");
    op.attr("ranks_per_node", ranks_per_node, between(0, 1 << 16))
        .recipe()
        .doc("sums of a node are rounded before nodes are added up; 0: all ranks are one node's. Upstream's nodes have 8");
    op.out("combined_x", combined_x, {bf16}, "R T H").layout(Layout::contiguous).doc("one row for each token");
    op.out("combined_topk_weights", combined_topk_weights, {f32}, "R T topk")
        .layout(Layout::contiguous)
        .optional()
        .doc("sums of the weights, made where topk_weights is given");
    op.symbol("R", {.minimum = 1});
    op.symbol("topk", {.maximum = 32});
  }

  std::int64_t ranks() const { return x.size(0); }
  std::int64_t room() const { return x.size(1); }
  std::int64_t tokens() const { return is_token_in_rank.size(1); }
  std::int64_t node() const { return ranks_per_node > 0 ? ranks_per_node : ranks(); }
};

}  // namespace dodona::ops
