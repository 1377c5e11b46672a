#pragma once

#include "ops/schemes/moe_activation.h"

namespace dodona::ops {

using enum DType;

/// A whole mixture of experts whose routing is given: in 16 bits, fp8 of whole tensors, fp8 of blocks or NVFP4, by the types of input and
/// weights.
/// Source: FlashInfer `cutlass_fused_moe` (TensorRT-LLM's CUTLASS kernels). Its list `quant_scales` is fc1_dequant, fc2_act_scale and
/// fc2_dequant (fp8; the fourth is read by LoRA alone), fc1_weight_scale and fc2_weight_scale (blocks), all six in order (NVFP4).
struct CutlassFusedMoe {
  Tensor input, token_selected_experts, token_final_scales, fc1_expert_weights, fc2_expert_weights, fc1_act_scale, fc1_weight_scale,
      fc1_dequant, fc2_act_scale, fc2_weight_scale, fc2_dequant, fc1_expert_biases, fc2_expert_biases, input_sf, swiglu_alpha, swiglu_beta,
      swiglu_limit;
  Tensor output;
  DType output_dtype = bf16;
  std::int64_t tp_size = 1, tp_rank = 0, ep_size = 1, ep_rank = 0;
  bool use_deepseek_fp8_block_scale = false, gated = true;
  std::string finalize = "separate", accumulator = "blocks", activation = "silu", limited = "gate";

  static constexpr OpInfo info{"cutlass_fused_moe", Category::moe, Source::flashinfer};
  void describe(auto& op) {
    op.signature(
        "input, token_selected_experts, token_final_scales, fc1_expert_weights, fc2_expert_weights, output_dtype, fc1_act_scale, "
        "fc1_weight_scale, fc1_dequant, fc2_act_scale, fc2_weight_scale, fc2_dequant, fc1_expert_biases, fc2_expert_biases, input_sf, "
        "swiglu_alpha, swiglu_beta, swiglu_limit, tp_size, tp_rank, ep_size, ep_rank, output=output");
    op.in("input", input, {bf16, f16, f8_e4m3, u8}, "T X")
        .layout(Layout::contiguous)
        .doc("a token a row: H numbers, or H/2 bytes of two codes of NVFP4, the first in the low nibble");
    op.in("token_selected_experts", token_selected_experts, {i32}, "T K")
        .layout(Layout::contiguous)
        .role(Role::expert_ids, "L*ep_size")
        .may_stray()
        .doc("global ids; those that are not of this rank, -1 among them, add nothing");
    op.in("token_final_scales", token_final_scales, {f32}, "T K").layout(Layout::contiguous).optional().doc("their weights; none: 1");
    op.in("fc1_expert_weights", fc1_expert_weights, {bf16, f16, f8_e4m3, u8}, "L (1+gated)*I X1")
        .layout(Layout::contiguous)
        .doc("rows of up, then of gate (of gate alone without gated); H numbers a row, or H/2 bytes of NVFP4");
    op.in("fc2_expert_weights", fc2_expert_weights, same_as("fc1_expert_weights"), "L H Y")
        .layout(Layout::contiguous)
        .doc("I numbers a row, or I/2 bytes");
    op.in("fc1_act_scale", fc1_act_scale, {f32}, "A1")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .optional()
        .kin("a choice below 256, plus 128, times 2^-2")
        .doc("NVFP4 made here of 16-bit tokens: their encode scale, one or one for each expert");
    op.in("fc1_weight_scale", fc1_weight_scale, {f32, f8_e4m3}, "L R1 C1")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .optional()
        .kin("f32: a choice below 256, plus 128, times 2^-16; f8_e4m3: 2 to the power of a choice below 4, times 2^-2")
        .doc("of blocks: f32 [L, rows/128, H/128]; of NVFP4 f8_e4m3 in tiles of 128 x 4, [L, align(rows, 128), H/16]");
    op.in("fc1_dequant", fc1_dequant, {f32}, "L")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .on_request()
        .kin("a choice below 256, plus 128, times 2^-14 for an input of u8, else 2^-19: gates of order 1")
        .doc("factor of the first product: scales of tokens and weights");
    op.in("fc2_act_scale", fc2_act_scale, {f32}, "A2")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .optional()
        .kin("a choice below 256, plus 128, times 2^-4")
        .doc("what activated numbers are multiplied with before they become e4m3, or their encode scale; one or one for each expert");
    op.in("fc2_weight_scale", fc2_weight_scale, same_as("fc1_weight_scale"), "L R2 C2")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .optional()
        .doc("likewise: [L, H/128, I/128], or [L, align(H, 128), I/16]");
    op.in("fc2_dequant", fc2_dequant, {f32}, "L")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .on_request()
        .kin("a choice below 256, plus 128, times 2^-19")
        .doc("factor of the second product");
    op.in("fc1_expert_biases", fc1_expert_biases, dtype_of_attr("output_dtype"), "L (1+gated)*I")
        .layout(Layout::contiguous)
        .on_request()
        .doc("added to gate and up once they are rounded");
    op.in("fc2_expert_biases", fc2_expert_biases, dtype_of_attr("output_dtype"), "L H")
        .layout(Layout::contiguous)
        .on_request()
        .doc("added to the results, on tp_rank 0");
    op.in("input_sf", input_sf, {f8_e4m3}, "align(T,128) align(H/16,4)")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .on_request()
        .doc("block scales of NVFP4 tokens in tiles of 128 x 4");
    op.in("swiglu_alpha", swiglu_alpha, {f32}, "L").layout(Layout::contiguous).on_request().doc("of the sigmoid's argument; by default 1");
    op.in("swiglu_beta", swiglu_beta, {f32}, "L").layout(Layout::contiguous).on_request().doc("added to up; by default 0");
    op.in("swiglu_limit", swiglu_limit, {f32}, "L")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .on_request()
        .doc("gate is at most this, up at most this in magnitude");
    op.dtype_attr("output_dtype", output_dtype, {bf16, f16}).doc("element type of output and biases; that of 16-bit tokens");
    op.attr("tp_size", tp_size, between(1, 1024)).doc("ranks that share each expert's width");
    op.attr("tp_rank", tp_rank, between(0, 1023)).doc("which of them this is: biases of results are added on rank 0");
    op.attr("ep_size", ep_size, between(1, 1024)).doc("ranks that have L experts each");
    op.attr("ep_rank", ep_rank, between(0, 1023)).doc("which of them this is: its experts begin at ep_rank * L");
    op.attr("use_deepseek_fp8_block_scale", use_deepseek_fp8_block_scale)
        .doc("bf16 tokens and weights of e4m3 with scales of 128 x 128: tokens are quantized here");
    describe_moe_activation(op, *this);
    op.choice("finalize", finalize, {"separate", "fused"})
        .doc(
            "separate: results are rounded, then weighted and added in fp32; fused: as upstream's tuner may choose, weighted results are "
            "rounded to output_dtype and added to the output by atomics, which round every sum");
    op.choice("accumulator", accumulator, {"blocks", "tcgen05"})
        .ignored()
        .doc("of NVFP4, what golden mode's budget allows sums to lose: as in trtllm_fp4_block_scale_moe");
    op.out("output", output, dtype_of_attr("output_dtype"), "T H")
        .layout(Layout::contiguous)
        .doc("the sum over a token's experts of this rank");
    op.symbol("L", {.minimum = 1});
    op.symbol("H", {.multiple_of = 16});
    op.symbol("I", {.multiple_of = 16});
  }
};

}  // namespace dodona::ops
