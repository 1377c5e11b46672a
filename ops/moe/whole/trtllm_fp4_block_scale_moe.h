#pragma once

#include "ops/schemes/trtllm_moe.h"

namespace dodona::ops {

/// A whole mixture of experts in NVFP4, its routing included.
/// Source: FlashInfer `trtllm_fp4_block_scale_moe` (trtllm-gen), of whose formats that of NVFP4 rows and weights.
struct TrtllmFp4BlockScaleMoe {
  Tensor routing_logits, routing_bias, given_ids, given_weights, hidden_states, hidden_states_scale, gemm1_weights, gemm1_weights_scale,
      gemm1_bias, gemm1_alpha, gemm1_beta, gemm1_clamp_limit, gemm2_weights, gemm2_weights_scale, gemm2_bias, output1_scale_scalar,
      output1_scale_gate_scalar, output2_scale_scalar, hidden_states_global_scale, gemm1_global_scale, gemm2_global_scale;
  Tensor output, gemm2_output, expert_weights, expanded_idx_to_permuted_idx, topk_ids, topk_weights;
  std::int64_t num_experts = 0, top_k = 0, n_group = 0, topk_group = 0, intermediate_size = 0, local_expert_offset = 0,
               local_num_experts = 0;
  std::int64_t tile_tokens_dim = 8, num_fused_shared_experts = 0;
  double routed_scaling_factor = 1.0, activation_global_scale = 0.0;
  bool gated = true;
  bool norm_topk_prob = true, record_routing = false, use_shuffled_weight = true, do_finalize = true;
  std::string routing_method_type = "Default", arithmetic = "kernel", activation = "silu", accumulator = "blocks";

  static constexpr OpInfo info{"trtllm_fp4_block_scale_moe", Category::moe, Source::flashinfer};
  std::int64_t hidden() const { return 2 * hidden_states.size(1); }

  void describe(auto& op) {
    op.signature(
        "routing_logits, routing_bias, hidden_states, hidden_states_scale, gemm1_weights, gemm1_weights_scale, gemm1_bias, gemm1_alpha, "
        "gemm1_beta, gemm1_clamp_limit, gemm2_weights, gemm2_weights_scale, gemm2_bias, output1_scale_scalar, output1_scale_gate_scalar, "
        "output2_scale_scalar, num_experts, top_k, n_group, topk_group, intermediate_size, local_expert_offset, local_num_experts, "
        "routed_scaling_factor, tile_tokens_dim, routing_method_type, do_finalize, output");
    const char* const each = "local_num_experts+num_fused_shared_experts";
    describe_trtllm_routing(op, *this);
    op.in("hidden_states", hidden_states, {u8}, "T H/2").codes(f4_e2m1).layout(Layout::contiguous).doc("a token a row");
    op.in("hidden_states_scale", hidden_states_scale, {f8_e4m3}, "T H/16")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .scales("hidden_states", 1, 16)
        .doc("block scales, row by row");
    op.in("gemm1_weights", gemm1_weights, {u8}, "local_num_experts+num_fused_shared_experts (1+gated)*intermediate_size H/2")
        .codes(f4_e2m1)
        .layout(Layout::contiguous)
        .doc("rows of up, then of gate, shuffled");
    op.in("gemm1_weights_scale", gemm1_weights_scale, {f8_e4m3},
          "local_num_experts+num_fused_shared_experts (1+gated)*intermediate_size H/16")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .scales("gemm1_weights", 1, 16, ScaleOrder::swizzled_128x4)
        .doc("block scales of the shuffled rows, in tiles");
    op.in("gemm1_bias", gemm1_bias, {f32}, "local_num_experts+num_fused_shared_experts (1+gated)*intermediate_size")
        .layout(Layout::contiguous)
        .on_request()
        .doc("added to the first sums before their factors, in the order of the rows of gemm1_weights");
    describe_trtllm_activation(op, *this);
    op.in("gemm2_weights", gemm2_weights, {u8}, "local_num_experts+num_fused_shared_experts H intermediate_size/2")
        .codes(f4_e2m1)
        .layout(Layout::contiguous)
        .doc("shuffled");
    op.in("gemm2_weights_scale", gemm2_weights_scale, {f8_e4m3}, "local_num_experts+num_fused_shared_experts H intermediate_size/16")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .scales("gemm2_weights", 1, 16, ScaleOrder::swizzled_128x4)
        .doc("block scales of the shuffled rows, in tiles");
    op.in("gemm2_bias", gemm2_bias, {f32}, "local_num_experts+num_fused_shared_experts H")
        .layout(Layout::contiguous)
        .on_request()
        .doc("added to the second sums before their factor, in the order of the rows of gemm2_weights");
    op.in("output1_scale_scalar", output1_scale_scalar, {f32}, each)
        .layout(Layout::contiguous)
        .role(Role::scale)
        .optional()
        .kin("a choice below 256, plus 128, times 2^-13 (2^-7 without gated): quantized activations of order 1")
        .doc(
            "factor of up: scales of rows and weights, and the encode scale of what the second product takes; without gated that encode "
            "scale alone");
    op.in("output1_scale_gate_scalar", output1_scale_gate_scalar, {f32}, each)
        .layout(Layout::contiguous)
        .role(Role::scale)
        .optional()
        .kin("a choice below 256, plus 128, times 2^-14: gates of order 1")
        .doc("factor of gate: scales of rows and weights");
    op.in("output2_scale_scalar", output2_scale_scalar, {f32}, each)
        .layout(Layout::contiguous)
        .role(Role::scale)
        .optional()
        .doc("factor of the results: scale of the weights, over that encode scale");
    op.in("hidden_states_global_scale", hidden_states_global_scale, {f32}, "1")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .on_request()
        .doc("of arithmetic=reference, in the place of the three factors: the encode scale of the rows");
    op.in("gemm1_global_scale", gemm1_global_scale, {f32}, each)
        .layout(Layout::contiguous)
        .role(Role::scale)
        .on_request()
        .doc("likewise of gemm1_weights");
    op.in("gemm2_global_scale", gemm2_global_scale, {f32}, each)
        .layout(Layout::contiguous)
        .role(Role::scale)
        .on_request()
        .doc("likewise of gemm2_weights");
    describe_trtllm_experts(op, *this);
    op.attr("activation_global_scale", activation_global_scale, between(0, 1e30))
        .doc("likewise of what the second product takes; 0 stands for 1");
    op.choice("accumulator", accumulator, {"blocks", "tcgen05"})
        .ignored()
        .doc(
            "what golden mode's budget allows sums to lose: blocks: fp32 roundings of blocks in any order, and what units of other steps "
            "cut; tcgen05: what the steps of a B200's unit cut, K in order");
    describe_trtllm_outputs(op, *this);
  }
};

}  // namespace dodona::ops
