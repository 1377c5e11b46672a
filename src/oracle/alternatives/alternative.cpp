#include "oracle/alternatives/alternative.h"

#include <algorithm>
#include <iterator>

#include "oracle/alternatives/families.h"

namespace dodona::oracle {
namespace {

struct Entry {
  std::string_view op;
  bool (*compute)(const alternatives::Call&);
};

constexpr Entry entries[] = {
    {"rmsnorm", alternatives::rmsnorm},
    {"fused_add_rmsnorm", alternatives::fused_add_rmsnorm},
    {"silu_and_mul", alternatives::silu_and_mul},
    {"gelu_and_mul", alternatives::gelu_and_mul},
    {"gelu_tanh_and_mul", alternatives::gelu_tanh_and_mul},
    {"apply_rope_with_cos_sin_cache_inplace", alternatives::apply_rope},
    {"rotary_embedding", alternatives::rotary_embedding},
    {"mla_rope_quantize_fp8", alternatives::mla_rope_quantize_fp8},
    {"merge_state", alternatives::merge_state},
    {"merge_state_v2", alternatives::merge_state_v2},
    {"moe_fused_gate", alternatives::moe_fused_gate},
    {"apply_shuffle_mul_sum", alternatives::apply_shuffle_mul_sum},
    {"moe_sum_reduce", alternatives::moe_sum_reduce},
    {"scaled_fp4_quant", alternatives::scaled_fp4_quant},
    {"scaled_fp4_experts_quant", alternatives::scaled_fp4_experts_quant},
    {"sgl_per_token_quant_fp8", alternatives::sgl_per_token_quant_fp8},
    {"sgl_per_tensor_quant_fp8", alternatives::sgl_per_tensor_quant_fp8},
    {"bmm", alternatives::bmm},
    {"linear", alternatives::linear},
    {"dsv3_fused_a_gemm", alternatives::dsv3_fused_a_gemm},
    {"dsv3_router_gemm", alternatives::dsv3_router_gemm},
    {"bmm_fp8", alternatives::bmm_fp8},
    {"cutlass_scaled_fp4_mm", alternatives::cutlass_scaled_fp4_mm},
    {"cutlass_fp4_group_mm", alternatives::cutlass_fp4_group_mm},
    {"cutlass_mla_decode", alternatives::cutlass_mla_decode},
    {"trtllm_batch_decode_with_kv_cache_mla", alternatives::trtllm_mla_decode},
};

const Entry* find(std::string_view op) {
  const auto* found = std::find_if(std::begin(entries), std::end(entries), [&](const Entry& entry) { return entry.op == op; });
  return found != std::end(entries) ? found : nullptr;
}

}  // namespace

bool has_alternative(std::string_view op) {
  return find(op) != nullptr;
}

bool compute_otherwise(const Op& op, const Arguments& arguments, Way way) {
  const Entry* entry = find(op.name());
  return entry != nullptr && entry->compute({op, arguments, way});
}

}  // namespace dodona::oracle
