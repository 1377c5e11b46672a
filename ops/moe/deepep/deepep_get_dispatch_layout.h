#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// How many tokens go where, before DeepEP's normal dispatch, rank by rank: to every rank, node and expert. A token goes to a rank once,
/// however many of its experts are there (expert e lives on rank e / (E / R)).
/// Source: DeepEP `Buffer.get_dispatch_layout`.
struct DeepepGetDispatchLayout {
  Tensor topk_idx, num_tokens_per_rank, num_tokens_per_rdma_rank, num_tokens_per_expert, is_token_in_rank;
  std::int64_t num_experts = 0;
  bool internode = false;

  static constexpr OpInfo info{"deepep_get_dispatch_layout", Category::moe, Source::torch};
  void describe(auto& op) {
    op.in("topk_idx", topk_idx, {i64}, "R T topk")
        .layout(Layout::contiguous)
        .role(Role::expert_ids, "num_experts")
        .may_stray()
        .doc("experts chosen by each token of each rank, -1 for none");
    op.attr("num_experts", num_experts, between(1, 1 << 16)).required().doc("experts E of all ranks, a multiple of R");
    op.attr("internode", internode).doc("ranks of several nodes, eight each: makes num_tokens_per_rdma_rank");
    op.out("num_tokens_per_rank", num_tokens_per_rank, {i32}, "R R")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("tokens that each rank sends to each");
    op.out("num_tokens_per_rdma_rank", num_tokens_per_rdma_rank, {i32}, "R ceil(R/8)")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .when("internode")
        .doc("tokens that each rank sends to each node");
    op.out("num_tokens_per_expert", num_tokens_per_expert, {i32}, "R num_experts")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("slots of each rank that name each expert");
    op.out("is_token_in_rank", is_token_in_rank, {boolean}, "R T R")
        .layout(Layout::contiguous)
        .judged(Judge::exact)
        .doc("whether a token goes to a rank");
    op.symbol("R", {.minimum = 1});
  }
};

}  // namespace dodona::ops
