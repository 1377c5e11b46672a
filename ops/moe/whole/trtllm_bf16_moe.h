#pragma once

#include "ops/schemes/trtllm_moe.h"

namespace dodona::ops {

/// A whole mixture of experts in bf16, its routing included.
/// Source: FlashInfer `trtllm_bf16_moe` (trtllm-gen).
struct TrtllmBf16Moe {
  Tensor routing_logits, routing_bias, given_ids, given_weights, hidden_states, gemm1_weights, gemm2_weights, gemm1_alpha, gemm1_beta,
      gemm1_clamp_limit;
  Tensor output, gemm2_output, expert_weights, expanded_idx_to_permuted_idx, topk_ids, topk_weights;
  std::int64_t num_experts = 0, top_k = 0, n_group = 0, topk_group = 0, intermediate_size = 0, local_expert_offset = 0,
               local_num_experts = 0;
  std::int64_t weight_layout = 2, tile_tokens_dim = 8;
  double routed_scaling_factor = 1.0;
  bool gated = true;
  bool norm_topk_prob = true, record_routing = false, use_shuffled_weight = true, do_finalize = true;
  std::string routing_method_type = "Default", arithmetic = "kernel", activation = "silu";

  static constexpr OpInfo info{"trtllm_bf16_moe", Category::moe, Source::flashinfer};
  std::int64_t hidden() const { return hidden_states.size(1); }

  void describe(auto& op) {
    op.signature(
        "routing_logits, routing_bias, hidden_states, gemm1_weights, gemm2_weights, num_experts, top_k, n_group, topk_group, "
        "intermediate_size, local_expert_offset, local_num_experts, routing_method_type, use_shuffled_weight, weight_layout");
    describe_trtllm_routing(op, *this);
    op.in("hidden_states", hidden_states, {bf16}, "T H").layout(Layout::contiguous).doc("a token a row");
    op.in("gemm1_weights", gemm1_weights, {bf16},
          "local_num_experts (1+gated)*intermediate_size H | local_num_experts H/64 (1+gated)*intermediate_size 64")
        .layout(Layout::contiguous)
        .doc("rows of up, then of gate, in the order that use_shuffled_weight and weight_layout say; BlockMajorK in either shape");
    op.in("gemm2_weights", gemm2_weights, {bf16}, "local_num_experts H intermediate_size | local_num_experts intermediate_size/64 H 64")
        .layout(Layout::contiguous)
        .doc("likewise");
    describe_trtllm_activation(op, *this);
    describe_trtllm_experts(op, *this);
    describe_trtllm_outputs(op, *this);
  }
};

}  // namespace dodona::ops
