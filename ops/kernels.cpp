#include "ops/kernels.h"

#include <algorithm>
#include <array>
#include <vector>

namespace dodona::ops {
namespace {

using enum Source;

constexpr std::array<Kernel, 60> all{{
    {"cutlass_mla_decode", sgl_kernel, "Attention", "attn_mqa"},
    {"cutlass_mla_get_workspace_size", sgl_kernel, "Attention", "attn_mqa"},
    {"silu_and_mul", sgl_kernel, "Activation", "act_fn, experts, shared_experts"},
    {"gelu_and_mul", sgl_kernel, "Activation", "act_fn, experts"},
    {"gelu_tanh_and_mul", sgl_kernel, "Activation", "act_fn"},
    {"rmsnorm", sgl_kernel, "Normalization", "input_layernorm, q_a_layernorm, kv_a_layernorm, post_attention_layernorm"},
    {"fused_add_rmsnorm", sgl_kernel, "Normalization", "input_layernorm, post_attention_layernorm"},
    {"int8_scaled_mm", sgl_kernel, "GEMM",
     "fused_qkv_a_proj_with_mqa, q_proj, kv_a_proj_with_mqa, q_b_proj, kv_b_proj, o_proj, gate_up_proj, down_proj"},
    {"fp8_scaled_mm", sgl_kernel, "GEMM", "Linear layers (FP8 path)"},
    {"fp8_blockwise_scaled_mm", sgl_kernel, "GEMM",
     "fused_qkv_a_proj_with_mqa, q_proj, kv_a_proj_with_mqa, q_b_proj, kv_b_proj, o_proj, gate_up_proj, down_proj, shared_experts"},
    {"fp8_blockwise_scaled_grouped_mm", sgl_kernel, "MoE GEMM", "experts"},
    {"cutlass_scaled_fp4_mm", sgl_kernel, "GEMM", "Linear layers (FP4 path)"},
    {"topk_softmax", sgl_kernel, "MoE Gating", "gate"},
    {"topk_sigmoid", sgl_kernel, "MoE Gating", "gate"},
    {"moe_fused_gate", sgl_kernel, "MoE Gating", "gate"},
    {"moe_align_block_size", sgl_kernel, "MoE", "experts"},
    {"moe_sum_reduce", sgl_kernel, "MoE", "experts (triton MoE path)"},
    {"apply_rope_with_cos_sin_cache_inplace", sgl_kernel, "RoPE", "rotary_emb"},
    {"rotary_embedding", sgl_kernel, "RoPE", "rotary_emb (fallback path)"},
    {"merge_state", sgl_kernel, "Attention", "attn_mha"},
    {"bmm_fp8", sgl_kernel, "GEMM",
     "forward_absorb_prepare, forward_absorb_core, forward_absorb_fused_mla_rope_prepare, forward_absorb_fused_mla_rope_core"},
    {"dsv3_fused_a_gemm", sgl_kernel, "GEMM", "_forward_fused_qkv_a_proj_with_mqa"},
    {"dsv3_router_gemm", sgl_kernel, "MoE Gating", "gate (ReplicatedLinear)"},
    {"merge_state_v2", sgl_kernel, "Attention", "_chunked_prefix_attn_mha"},
    {"concat_mla_k", sgl_kernel, "Attention", "_concat_and_cast_mha_k"},
    {"concat_mla_absorb_q", sgl_kernel, "Attention", "_merge_q"},
    {"prepare_moe_input", sgl_kernel, "MoE", "experts (cutlass MoE path)"},
    {"shuffle_rows", sgl_kernel, "MoE", "experts (cutlass MoE path)"},
    {"es_fp8_blockwise_scaled_grouped_mm", sgl_kernel, "MoE GEMM", "experts (cutlass MoE path)"},
    {"apply_shuffle_mul_sum", sgl_kernel, "MoE", "experts (cutlass MoE path)"},
    {"scaled_fp4_experts_quant", sgl_kernel, "MoE", "experts (cutlass FP4 MoE path)"},
    {"cutlass_fp4_group_mm", sgl_kernel, "MoE GEMM", "experts (cutlass FP4 MoE path)"},
    {"cutlass_w4a8_moe_mm", sgl_kernel, "MoE GEMM", "experts (W4A8 MoE path)"},
    {"get_cutlass_w4a8_moe_mm_data", sgl_kernel, "MoE", "experts (W4A8 MoE path)"},
    {"sgl_per_token_quant_fp8", sgl_kernel, "Quantization", "input quantization (FP8)"},
    {"sgl_per_token_group_quant_fp8", sgl_kernel, "Quantization", "input quantization (FP8 grouped)"},
    {"sgl_per_token_group_quant_8bit", sgl_kernel, "Quantization", "input quantization (8-bit grouped)"},
    {"sgl_per_token_group_quant_int8", sgl_kernel, "Quantization", "input quantization (INT8 grouped)"},
    {"qserve_w4a8_per_chn_gemm", sgl_kernel, "GEMM", "Linear layers (QoQ path)"},
    {"qserve_w4a8_per_group_gemm", sgl_kernel, "GEMM", "Linear layers (QoQ path)"},
    {"hadamard_transform", sgl_kernel, "NSA", "NSA indexer"},
    {"fast_topk", sgl_kernel, "Speculative", "Speculative decoding"},
    {"fast_topk_v2", sgl_kernel, "NSA", "NSA sparse attention"},
    {"fast_topk_transform_fused", sgl_kernel, "NSA", "NSA sparse attention"},
    {"fast_topk_transform_ragged_fused", sgl_kernel, "NSA", "NSA sparse attention"},
    {"min_p_sampling_from_probs", sgl_kernel, "Sampling", "Sampling"},
    {"top_k_renorm_prob", sgl_kernel, "Sampling", "Sampling"},
    {"top_p_renorm_prob", sgl_kernel, "Sampling", "Sampling"},
    {"top_k_top_p_sampling_from_probs", sgl_kernel, "Sampling", "Sampling"},
    {"build_tree_kernel_efficient", sgl_kernel, "Speculative", "Speculative decoding"},
    {"verify_tree_greedy", sgl_kernel, "Speculative", "Speculative decoding"},
    {"tree_speculative_sampling_target_only", sgl_kernel, "Speculative", "Speculative decoding"},
    {"weak_ref_tensor", sgl_kernel, "Utility", "captured graphs"},
    {"trtllm_batch_decode_with_kv_cache_mla", flashinfer, "Attention", "attn_mqa"},
    {"trtllm_ragged_attention_deepseek", flashinfer, "Attention", "attn_mqa"},
    {"trtllm_bf16_moe", flashinfer, "MoE", "experts"},
    {"trtllm_fp8_block_scale_moe", flashinfer, "MoE", "experts"},
    {"trtllm_fp4_block_scale_moe", flashinfer, "MoE", "experts"},
    {"mla_rope_quantize_fp8", flashinfer, "RoPE", "attn_mqa"},
    {"fused_moe_kernel", triton, "MoE", "experts"},
}};

}  // namespace

std::span<const Kernel> kernels() {
  return all;
}

const Op* op_of(const Kernel& kernel) {
  return registry().find(kernel.name);
}

std::string kernels_in_words() {
  const auto in = std::count_if(all.begin(), all.end(), [](const Kernel& kernel) { return op_of(kernel) != nullptr; });
  const auto beside = static_cast<std::ptrdiff_t>(registry().all().size()) - in;
  return std::to_string(in) + " of the inventory's " + std::to_string(all.size()) + " kernels are in, and " + std::to_string(beside) +
         " ops beside them.";
}

}  // namespace dodona::ops
