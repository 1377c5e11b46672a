// One function per op, or per family of ops: each is a plain loop over the op's formula. False where the way does not apply.
#pragma once

#include "oracle/alternatives/call.h"

namespace dodona::oracle::alternatives {

bool rmsnorm(const Call& call);
bool fused_add_rmsnorm(const Call& call);

bool silu_and_mul(const Call& call);
bool gelu_and_mul(const Call& call);
bool gelu_tanh_and_mul(const Call& call);

bool apply_rope(const Call& call);
bool rotary_embedding(const Call& call);
bool mla_rope_quantize_fp8(const Call& call);

bool merge_state(const Call& call);
bool merge_state_v2(const Call& call);

bool moe_fused_gate(const Call& call);
bool apply_shuffle_mul_sum(const Call& call);
bool moe_sum_reduce(const Call& call);

bool scaled_fp4_quant(const Call& call);
bool scaled_fp4_experts_quant(const Call& call);
bool sgl_per_token_quant_fp8(const Call& call);
bool sgl_per_tensor_quant_fp8(const Call& call);

bool bmm(const Call& call);
bool linear(const Call& call);
bool dsv3_fused_a_gemm(const Call& call);
bool dsv3_router_gemm(const Call& call);
bool bmm_fp8(const Call& call);
bool cutlass_scaled_fp4_mm(const Call& call);
bool cutlass_fp4_group_mm(const Call& call);

bool cutlass_mla_decode(const Call& call);
bool trtllm_mla_decode(const Call& call);

}  // namespace dodona::oracle::alternatives
