#pragma once

#include "ops/routing/native_router.h"

namespace dodona::ops {

/// The router of DeepSeek V2 in torch: softmax, the best groups by their best expert, the best experts of those.
/// Source: sglang `grouped_topk_gpu` (layers/moe/topk.py).
struct GroupedTopk {
  Tensor gating_output, topk_weights, topk_ids;
  std::int64_t topk = 1, num_expert_group = 1, topk_group = 1, num_fused_shared_experts = 0;
  bool renormalize = false, apply_routed_scaling_factor_on_output = false;
  double routed_scaling_factor = 0.0;
  std::string rounding = "compiled";

  static constexpr OpInfo info{"grouped_topk", Category::moe, Source::torch};
  void describe(auto& op) {
    op.in("gating_output", gating_output, {f32, bf16, f16}, "T E").role(Role::logits).doc("router logits");
    describe_native_outputs(op, *this);
    describe_native_groups(op, *this);
  }

  NativeRouter router() const {
    const DType type = gating_output.dtype();
    static const Tensor no_bias;
    return {gating_output,
            no_bias,
            topk_weights,
            topk_ids,
            true,
            rounding == "eager" ? eager_roundings(type) : compiled_roundings(type, true, num_fused_shared_experts),
            num_expert_group,
            topk_group,
            true,
            num_fused_shared_experts,
            renormalize,
            routed_scaling_factor,
            apply_routed_scaling_factor_on_output};
  }
};

}  // namespace dodona::ops
