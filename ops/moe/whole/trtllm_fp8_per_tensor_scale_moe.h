#pragma once

#include "ops/schemes/trtllm_moe.h"

namespace dodona::ops {

/// A whole mixture of experts in e4m3 with factors of whole tensors, its routing included.
/// Source: FlashInfer `trtllm_fp8_per_tensor_scale_moe` (trtllm-gen).
struct TrtllmFp8PerTensorScaleMoe {
  Tensor routing_logits, routing_bias, given_ids, given_weights, hidden_states, gemm1_weights, output1_scales_scalar,
      output1_scales_gate_scalar, gemm2_weights, output2_scales_scalar, gemm1_alpha, gemm1_beta, gemm1_clamp_limit;
  Tensor output, gemm2_output, expert_weights, expanded_idx_to_permuted_idx, topk_ids, topk_weights;
  std::int64_t num_experts = 0, top_k = 0, n_group = 0, topk_group = 0, intermediate_size = 0, local_expert_offset = 0,
               local_num_experts = 0;
  std::int64_t tile_tokens_dim = 8;
  double routed_scaling_factor = 1.0;
  bool gated = true, use_routing_scales_on_input = false, norm_topk_prob = true, record_routing = false, use_shuffled_weight = true,
       do_finalize = true;
  std::string routing_method_type = "Default", arithmetic = "kernel", activation = "silu";

  static constexpr OpInfo info{"trtllm_fp8_per_tensor_scale_moe", Category::moe, Source::flashinfer};
  std::int64_t hidden() const { return hidden_states.size(1); }

  void describe(auto& op) {
    op.signature(
        "routing_logits, routing_bias, hidden_states, gemm1_weights, output1_scales_scalar, output1_scales_gate_scalar, gemm2_weights, "
        "output2_scales_scalar, num_experts, top_k, n_group, topk_group, intermediate_size, local_expert_offset, local_num_experts, "
        "routed_scaling_factor, use_routing_scales_on_input, tile_tokens_dim, routing_method_type");
    describe_trtllm_routing(op, *this);
    op.in("hidden_states", hidden_states, {f8_e4m3}, "T H").layout(Layout::contiguous).doc("a token a row");
    op.in("gemm1_weights", gemm1_weights, {f8_e4m3}, "local_num_experts (1+gated)*intermediate_size H")
        .layout(Layout::contiguous)
        .doc("rows of up, then of gate, shuffled");
    op.in("output1_scales_scalar", output1_scales_scalar, {f32}, "local_num_experts")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .kin("a choice below 256, plus 128, times 2^-15 (2^-4 without gated): quantized activations that seldom saturate")
        .doc("factor of up: scales of rows and weights, over that of what the second product takes; without gated 1 over the latter alone");
    op.in("output1_scales_gate_scalar", output1_scales_gate_scalar, {f32}, "local_num_experts")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .kin("a choice below 256, plus 128, times 2^-19: gates of order 1")
        .doc("factor of gate: scales of rows and weights");
    op.in("gemm2_weights", gemm2_weights, {f8_e4m3}, "local_num_experts H intermediate_size").layout(Layout::contiguous).doc("shuffled");
    op.in("output2_scales_scalar", output2_scales_scalar, {f32}, "local_num_experts")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .doc("factor of the results: scales of what the second product takes and of the weights");
    describe_trtllm_activation(op, *this);
    describe_trtllm_experts(op, *this);
    op.attr("use_routing_scales_on_input", use_routing_scales_on_input)
        .doc("weights multiply gate and up, of Llama4, instead of the results");
    describe_trtllm_outputs(op, *this);
  }
};

}  // namespace dodona::ops
