#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// The router of Kimi K2: s = sigmoid(x), the best of 384 experts by s + bias, weights s over their sum. No groups.
/// Source: sgl-kernel `kimi_k2_moe_fused_gate`.
struct KimiK2MoeFusedGate {
  Tensor input_tensor, bias, topk_weights, topk_ids;
  std::int64_t topk = 1;
  bool renormalize = true;
  double routed_scaling_factor = 1.0;
  bool apply_routed_scaling_factor_on_output = false;

  static constexpr OpInfo info{"kimi_k2_moe_fused_gate", Category::moe, Source::sgl_kernel};
  void describe(auto& op) {
    op.in("input_tensor", input_tensor, {f32}, "T E").role(Role::logits).doc("router logits");
    op.in("bias", bias, {f32}, "E")
        .layout(Layout::contiguous)
        .role(Role::weight)
        .doc("correction bias: steers the choice, not the weights");
    op.attr("topk", topk, between(1, 384)).required().doc("experts chosen; upstream's kernel for up to 512 tokens holds 8");
    op.attr("renormalize", renormalize).doc("weights are divided by their sum");
    op.attr("routed_scaling_factor", routed_scaling_factor).doc("factor of the weights, narrowed to fp32, where it is applied");
    op.attr("apply_routed_scaling_factor_on_output", apply_routed_scaling_factor_on_output)
        .doc("multiplies renormalized weights by it; without renormalize there is no factor");
    op.out("topk_weights", topk_weights, {f32}, "T topk").doc("weights, in order of choice");
    op.out("topk_ids", topk_ids, {i32}, "T topk").role(Role::expert_ids).judged(Judge::top_k).doc("experts by falling s + bias");
    op.symbol("E", {.choices = {384}});
    op.rows_independent("T");
  }

  std::int64_t tokens() const { return input_tensor.size(0); }
};

}  // namespace dodona::ops
