// The inventory: one line per op. Each name X is defined in ops/<category>/X.cpp, or in a room of that folder, as
// `std::unique_ptr<Op> op_X()`.
#include "dodona/op.h"

// clang-format off
#define DODONA_INVENTORY(OP)                \
  OP(rmsnorm)                               \
  OP(fused_add_rmsnorm)                     \
  OP(layernorm)                             \
  OP(silu_and_mul)                          \
  OP(gelu_and_mul)                          \
  OP(gelu_tanh_and_mul)                     \
  OP(apply_rope_with_cos_sin_cache_inplace) \
  OP(rotary_embedding)                      \
  OP(mla_rope_quantize_fp8)                 \
  OP(concat_mla_k)                          \
  OP(concat_mla_absorb_q)                   \
  OP(merge_state)                           \
  OP(merge_state_v2)                        \
  OP(merge_states)                          \
  OP(cutlass_mla_get_workspace_size)        \
  OP(cutlass_mla_decode)                    \
  OP(trtllm_batch_decode_with_kv_cache_mla) \
  OP(trtllm_batch_decode_sparse_mla)        \
  OP(xqa_batch_decode_with_kv_cache_mla)    \
  OP(batch_mla_paged_attention)             \
  OP(trtllm_ragged_attention_deepseek)      \
  OP(batch_prefill_with_ragged_kv_cache)    \
  OP(get_mla_metadata)                      \
  OP(flash_mla_with_kvcache)                \
  OP(flash_mla_sparse_decode)               \
  OP(flash_mla_sparse_fwd)                  \
  OP(context_attention_fwd)                 \
  OP(decode_attention_fwd)                  \
  OP(decode_attention_fwd_grouped_rope)     \
  OP(extend_attention_fwd)                  \
  OP(set_mla_kv_buffer)                     \
  OP(get_mla_kv_buffer)                     \
  OP(set_kv_buffer_kernel)                  \
  OP(concat_and_cast_mha_k)                 \
  OP(create_chunked_prefix_cache_kv_indices) \
  OP(quantize_k_cache)                      \
  OP(dequantize_k_cache)                    \
  OP(dequantize_k_cache_paged)              \
  OP(transfer_kv_per_layer)                 \
  OP(transfer_kv_per_layer_mla)             \
  OP(transfer_kv_per_layer_pf_lf)           \
  OP(transfer_kv_per_layer_mla_pf_lf)       \
  OP(transfer_kv_per_layer_ph_lf)           \
  OP(transfer_kv_all_layer)                 \
  OP(transfer_kv_all_layer_mla)             \
  OP(transfer_kv_all_layer_lf_pf)           \
  OP(transfer_kv_all_layer_mla_lf_pf)       \
  OP(transfer_kv_all_layer_lf_ph)           \
  OP(transfer_kv_direct)                    \
  OP(transfer_kv_per_layer_direct_pf_lf)    \
  OP(transfer_kv_all_layer_direct_lf_pf)    \
  OP(hadamard_transform)                    \
  OP(hadamard_transform_12n)                \
  OP(hadamard_transform_20n)                \
  OP(hadamard_transform_28n)                \
  OP(hadamard_transform_40n)                \
  OP(fast_topk_v2)                          \
  OP(fast_topk_transform_fused)             \
  OP(fast_topk_transform_ragged_fused)      \
  OP(act_quant)                             \
  OP(set_index_k_scale_buffer)              \
  OP(get_index_k_scale_buffer)              \
  OP(fused_store_index_k_cache)             \
  OP(fp8_mqa_logits)                        \
  OP(fp8_paged_mqa_logits)                  \
  OP(topk_softmax)                          \
  OP(topk_sigmoid)                          \
  OP(moe_fused_gate)                        \
  OP(kimi_k2_moe_fused_gate)                \
  OP(grouped_topk)                          \
  OP(biased_grouped_topk)                   \
  OP(fused_topk_torch_native)               \
  OP(select_experts)                        \
  OP(fast_topk)                             \
  OP(build_tree_kernel_efficient)           \
  OP(verify_tree_greedy)                    \
  OP(tree_speculative_sampling_target_only) \
  OP(reconstruct_indices_from_tree_mask)    \
  OP(segment_packbits)                      \
  OP(select_top_k_tokens)                   \
  OP(organize_draft_results)                \
  OP(align_evict_mask_to_page_size)         \
  OP(assign_req_to_token_pool)              \
  OP(create_extend_after_decode_spec_info)  \
  OP(get_target_cache_loc)                  \
  OP(filter_finished_cache_loc_kernel)      \
  OP(cutlass_fp4_group_mm)                  \
  OP(fp8_blockwise_scaled_grouped_mm)       \
  OP(es_fp8_blockwise_scaled_grouped_mm)    \
  OP(dsv3_router_gemm)                      \
  OP(dsv3_fused_a_gemm)                     \
  OP(linear)                                \
  OP(bmm)                                   \
  OP(moe_align_block_size)                  \
  OP(matmul_persistent)                     \
  OP(log_softmax)                           \
  OP(mean_dim)                              \
  OP(prepare_moe_input)                     \
  OP(get_cutlass_w4a8_moe_mm_data)          \
  OP(shuffle_rows)                          \
  OP(apply_shuffle_mul_sum)                 \
  OP(moe_sum_reduce)                        \
  OP(moe_sum)                               \
  OP(ep_gather)                             \
  OP(post_reorder_triton_kernel)            \
  OP(deepep_post_reorder_triton_kernel)     \
  OP(post_reorder_for_cutlass_moe)          \
  OP(ep_scatter)                            \
  OP(cutlass_w4_run_moe_ep_preproess)       \
  OP(pre_reorder_for_cutlass_moe)           \
  OP(deepep_run_moe_deep_preprocess)        \
  OP(deepep_permute_triton_kernel)          \
  OP(deepep_ll_get_cutlass_w4a8_moe_mm_data)\
  OP(moe_ep_deepgemm_preprocess)            \
  OP(silu_and_mul_masked_post_quant_fwd)    \
  OP(silu_mul_static_tensorwise_quant_for_cutlass_moe) \
  OP(silu_and_mul_masked_post_per_tensor_quant_fwd) \
  OP(deepep_low_latency_dispatch)           \
  OP(deepep_low_latency_combine)            \
  OP(deepep_low_latency_dispatch_nvfp4)     \
  OP(deepep_get_dispatch_layout)            \
  OP(deepep_dispatch)                       \
  OP(deepep_combine)                        \
  OP(cutlass_w4a8_moe_mm)                   \
  OP(m_grouped_fp8_gemm_nt_contiguous)      \
  OP(m_grouped_fp8_gemm_nt_masked)          \
  OP(fused_moe_kernel)                      \
  OP(trtllm_bf16_moe)                       \
  OP(trtllm_fp8_block_scale_moe)            \
  OP(trtllm_fp4_block_scale_moe)            \
  OP(trtllm_fp8_per_tensor_scale_moe)       \
  OP(cutlass_fused_moe)                     \
  OP(bmm_fp8)                               \
  OP(int8_scaled_mm)                        \
  OP(fp8_scaled_mm)                         \
  OP(fp8_blockwise_scaled_mm)               \
  OP(fp8_gemm_nt)                           \
  OP(qserve_w4a8_per_chn_gemm)              \
  OP(qserve_w4a8_per_group_gemm)            \
  OP(cutlass_scaled_fp4_mm)                 \
  OP(mm_fp4)                                \
  OP(scaled_fp4_quant)                      \
  OP(scaled_fp4_experts_quant)              \
  OP(scaled_fp4_grouped_quant)              \
  OP(silu_and_mul_scaled_fp4_grouped_quant) \
  OP(fp4_quantize)                          \
  OP(nvfp4_quantize)                        \
  OP(mxfp4_quantize)                        \
  OP(mxfp8_quantize)                        \
  OP(sgl_per_token_quant_fp8)               \
  OP(sgl_per_tensor_quant_fp8)              \
  OP(per_token_quant_int8)                  \
  OP(sgl_per_token_group_quant_8bit)        \
  OP(sgl_per_token_group_quant_fp8)         \
  OP(sgl_per_token_group_quant_int8)        \
  OP(nvfp4_block_scale_interleave)          \
  OP(awq_dequantize)                        \
  OP(apply_token_bitmask_inplace_cuda)      \
  OP(softmax)                               \
  OP(top_k_renorm_prob)                     \
  OP(top_p_renorm_prob)                     \
  OP(top_k_mask_logits)                     \
  OP(min_p_sampling_from_probs)             \
  OP(top_p_sampling_from_probs)             \
  OP(top_k_top_p_sampling_from_probs)       \
  OP(weak_ref_tensor)                       \
  OP(all_reduce)                            \
  OP(reduce_scatter_tensor)                 \
  OP(all_gather_into_tensor)                \
  OP(trtllm_allreduce_fusion)
// clang-format on

namespace dodona {

#define DODONA_DECLARE(X) std::unique_ptr<Op> op_##X();
DODONA_INVENTORY(DODONA_DECLARE)
#undef DODONA_DECLARE

const Registry& registry() {
#define DODONA_ENTRY(X) {#X, op_##X},
  static constexpr Registry::Entry entries[] = {DODONA_INVENTORY(DODONA_ENTRY)};
#undef DODONA_ENTRY
  static const Registry inventory(entries);
  return inventory;
}

}  // namespace dodona
