#pragma once

#include "ops/routing/native_router.h"

namespace dodona::ops {

/// The router of DeepSeek V3 in torch: sigmoid, a bias that steers the choice, the best groups by the sum of their two best, the best
/// experts of those. With one group that of Kimi K2 (`kimi_k2_biased_topk_impl`).
/// Source: sglang `biased_grouped_topk_impl` (layers/moe/topk.py).
struct BiasedGroupedTopk {
  Tensor gating_output, correction_bias, topk_weights, topk_ids;
  std::int64_t topk = 1, num_expert_group = 1, topk_group = 1, num_fused_shared_experts = 0;
  bool renormalize = false, apply_routed_scaling_factor_on_output = false;
  double routed_scaling_factor = 0.0;
  std::string rounding = "compiled", sigmoid = "exp";

  static constexpr OpInfo info{"biased_grouped_topk", Category::moe, Source::torch};
  void describe(auto& op) {
    op.in("gating_output", gating_output, {f32, bf16, f16}, "T E").role(Role::logits).doc("router logits");
    op.in("correction_bias", correction_bias, {f32}, "E").layout(Layout::contiguous).role(Role::weight).doc("steers the choice alone");
    describe_native_outputs(op, *this);
    describe_native_groups(op, *this);
    op.choice("sigmoid", sigmoid, {"exp", "tanh"})
        .doc("what scores are made by: tanh is 0.5 tanh(0.5 x) + 0.5, as FlashInfer's `fused_topk_deepseek` has it");
  }

  NativeRouter router() const {
    const DType type = gating_output.dtype();
    return {gating_output,
            correction_bias,
            topk_weights,
            topk_ids,
            false,
            sigmoid == "tanh"     ? NativeRoundings{f32, f32, f32}
            : rounding == "eager" ? eager_roundings(type)
                                  : compiled_roundings(type, false, num_fused_shared_experts),
            num_expert_group,
            topk_group,
            false,
            num_fused_shared_experts,
            renormalize,
            routed_scaling_factor,
            apply_routed_scaling_factor_on_output,
            sigmoid == "tanh"};
  }
};

}  // namespace dodona::ops
