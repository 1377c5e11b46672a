// Ops with other implementations, one line each: a function of the op's name that is a plain loop over the op's formula, in the file of its
// family. It computes a call one way, or returns false where the way does not apply.
#pragma once

#include "oracle/alternatives/call.h"

// clang-format off
#define DODONA_ALTERNATIVES(OP) \
  OP(rmsnorm)                               \
  OP(fused_add_rmsnorm)                     \
  OP(layernorm)                             \
  OP(quantize_k_cache)                      \
  OP(silu_and_mul)                          \
  OP(gelu_and_mul)                          \
  OP(gelu_tanh_and_mul)                     \
  OP(apply_rope_with_cos_sin_cache_inplace) \
  OP(rotary_embedding)                      \
  OP(mla_rope_quantize_fp8)                 \
  OP(merge_state)                           \
  OP(merge_state_v2)                        \
  OP(merge_states)                          \
  OP(topk_softmax)                          \
  OP(topk_sigmoid)                          \
  OP(moe_fused_gate)                        \
  OP(kimi_k2_moe_fused_gate)                \
  OP(grouped_topk)                          \
  OP(biased_grouped_topk)                   \
  OP(fused_topk_torch_native)               \
  OP(select_experts)                        \
  OP(apply_shuffle_mul_sum)                 \
  OP(moe_sum_reduce)                        \
  OP(all_reduce)                            \
  OP(reduce_scatter_tensor)                 \
  OP(trtllm_allreduce_fusion)               \
  OP(moe_sum)                               \
  OP(ep_gather)                             \
  OP(post_reorder_for_cutlass_moe)          \
  OP(ep_scatter)                            \
  OP(moe_ep_deepgemm_preprocess)            \
  OP(silu_and_mul_masked_post_quant_fwd)    \
  OP(silu_mul_static_tensorwise_quant_for_cutlass_moe) \
  OP(silu_and_mul_masked_post_per_tensor_quant_fwd) \
  OP(deepep_low_latency_dispatch)           \
  OP(deepep_low_latency_dispatch_nvfp4)     \
  OP(pre_reorder_for_cutlass_moe)           \
  OP(deepep_low_latency_combine)            \
  OP(cutlass_w4a8_moe_mm)                   \
  OP(fused_moe_kernel)                      \
  OP(trtllm_bf16_moe)                       \
  OP(trtllm_fp8_block_scale_moe)            \
  OP(trtllm_fp4_block_scale_moe)            \
  OP(trtllm_fp8_per_tensor_scale_moe)       \
  OP(cutlass_fused_moe)                     \
  OP(scaled_fp4_quant)                      \
  OP(scaled_fp4_experts_quant)              \
  OP(scaled_fp4_grouped_quant)              \
  OP(silu_and_mul_scaled_fp4_grouped_quant) \
  OP(fp4_quantize)                          \
  OP(nvfp4_quantize)                        \
  OP(mxfp4_quantize)                        \
  OP(sgl_per_token_quant_fp8)               \
  OP(sgl_per_tensor_quant_fp8)              \
  OP(per_token_quant_int8)                  \
  OP(sgl_per_token_group_quant_8bit)        \
  OP(sgl_per_token_group_quant_fp8)         \
  OP(sgl_per_token_group_quant_int8)        \
  OP(bmm)                                   \
  OP(linear)                                \
  OP(matmul_persistent)                     \
  OP(log_softmax)                           \
  OP(mean_dim)                              \
  OP(hadamard_transform)                    \
  OP(hadamard_transform_12n)                \
  OP(hadamard_transform_20n)                \
  OP(hadamard_transform_28n)                \
  OP(hadamard_transform_40n)                \
  OP(softmax)                               \
  OP(top_k_renorm_prob)                     \
  OP(top_p_renorm_prob)                     \
  OP(min_p_sampling_from_probs)             \
  OP(top_p_sampling_from_probs)             \
  OP(top_k_top_p_sampling_from_probs)       \
  OP(act_quant)                             \
  OP(fused_store_index_k_cache)             \
  OP(fp8_mqa_logits)                        \
  OP(fp8_paged_mqa_logits)                  \
  OP(dsv3_fused_a_gemm)                     \
  OP(dsv3_router_gemm)                      \
  OP(bmm_fp8)                               \
  OP(int8_scaled_mm)                        \
  OP(fp8_scaled_mm)                         \
  OP(fp8_blockwise_scaled_mm)               \
  OP(fp8_gemm_nt)                           \
  OP(m_grouped_fp8_gemm_nt_contiguous)      \
  OP(m_grouped_fp8_gemm_nt_masked)          \
  OP(qserve_w4a8_per_chn_gemm)              \
  OP(qserve_w4a8_per_group_gemm)            \
  OP(cutlass_scaled_fp4_mm)                 \
  OP(mm_fp4)                                \
  OP(cutlass_fp4_group_mm)                  \
  OP(fp8_blockwise_scaled_grouped_mm)       \
  OP(es_fp8_blockwise_scaled_grouped_mm)    \
  OP(cutlass_mla_decode)                    \
  OP(trtllm_batch_decode_with_kv_cache_mla) \
  OP(trtllm_batch_decode_sparse_mla)        \
  OP(xqa_batch_decode_with_kv_cache_mla)    \
  OP(batch_mla_paged_attention)             \
  OP(trtllm_ragged_attention_deepseek)      \
  OP(batch_prefill_with_ragged_kv_cache)    \
  OP(context_attention_fwd)                 \
  OP(decode_attention_fwd)                  \
  OP(decode_attention_fwd_grouped_rope)     \
  OP(extend_attention_fwd)                  \
  OP(flash_mla_with_kvcache)                \
  OP(flash_mla_sparse_decode)               \
  OP(flash_mla_sparse_fwd)
// clang-format on

namespace dodona::oracle::alternatives {

#define DODONA_DECLARE(op) bool op(const Call& call);
DODONA_ALTERNATIVES(DODONA_DECLARE)
#undef DODONA_DECLARE

}  // namespace dodona::oracle::alternatives
