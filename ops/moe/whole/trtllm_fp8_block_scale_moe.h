#pragma once

#include "ops/schemes/trtllm_moe.h"

namespace dodona::ops {

/// A whole mixture of experts in e4m3 with scales of blocks, DeepSeek's form, its routing included.
/// Source: FlashInfer `trtllm_fp8_block_scale_moe` (trtllm-gen).
struct TrtllmFp8BlockScaleMoe {
  Tensor routing_logits, routing_bias, given_ids, given_weights, hidden_states, hidden_states_scale, gemm1_weights, gemm1_weights_scale,
      gemm2_weights, gemm2_weights_scale, gemm1_alpha, gemm1_beta, gemm1_clamp_limit;
  Tensor output, gemm2_output, expert_weights, expanded_idx_to_permuted_idx, topk_ids, topk_weights;
  std::int64_t num_experts = 0, top_k = 0, n_group = 0, topk_group = 0, intermediate_size = 0, local_expert_offset = 0,
               local_num_experts = 0;
  std::int64_t weight_layout = 0, tile_tokens_dim = 8, num_fused_shared_experts = 0;
  double routed_scaling_factor = 1.0;
  bool norm_topk_prob = true, record_routing = false, use_shuffled_weight = false, do_finalize = true;
  std::string routing_method_type = "Default", arithmetic = "kernel";

  static constexpr OpInfo info{"trtllm_fp8_block_scale_moe", Category::moe, Source::flashinfer};
  std::int64_t hidden() const { return hidden_states.size(1); }

  void describe(auto& op) {
    op.signature(
        "routing_logits, routing_bias, hidden_states, hidden_states_scale, gemm1_weights, gemm1_weights_scale, gemm2_weights, "
        "gemm2_weights_scale, num_experts, top_k, n_group, topk_group, intermediate_size, local_expert_offset, local_num_experts, "
        "routed_scaling_factor, tile_tokens_dim, routing_method_type, use_shuffled_weight, weight_layout");
    describe_trtllm_routing(op, *this);
    op.in("hidden_states", hidden_states, {f8_e4m3}, "T H").layout(Layout::contiguous).doc("a token a row");
    op.in("hidden_states_scale", hidden_states_scale, {f32}, "H/128 T")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .scales("hidden_states", 1, 128, ScaleOrder::m_major)
        .kin("a choice below 256, plus 128, times 2^-19: gates of order 1")
        .doc("what 128 codes of a row are multiplied with");
    op.in("gemm1_weights", gemm1_weights, {f8_e4m3},
          "local_num_experts+num_fused_shared_experts 2*intermediate_size H | "
          "local_num_experts+num_fused_shared_experts H/128 2*intermediate_size 128")
        .layout(Layout::contiguous)
        .doc("rows of up, then of gate, in the order that use_shuffled_weight and weight_layout say; BlockMajorK in either shape");
    op.in("gemm1_weights_scale", gemm1_weights_scale, {f32}, "local_num_experts+num_fused_shared_experts intermediate_size/64 H/128")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .scales("gemm1_weights", 128, 128)
        .doc("what 128 x 128 codes are multiplied with, row-major whatever the weights' order");
    op.in("gemm2_weights", gemm2_weights, {f8_e4m3},
          "local_num_experts+num_fused_shared_experts H intermediate_size | "
          "local_num_experts+num_fused_shared_experts intermediate_size/128 H 128")
        .layout(Layout::contiguous)
        .doc("likewise");
    op.in("gemm2_weights_scale", gemm2_weights_scale, {f32}, "local_num_experts+num_fused_shared_experts H/128 intermediate_size/128")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .scales("gemm2_weights", 128, 128)
        .doc("likewise");
    describe_trtllm_activation(op, *this);
    describe_trtllm_experts(op, *this);
    describe_trtllm_outputs(op, *this);
  }
};

}  // namespace dodona::ops
