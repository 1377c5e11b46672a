#pragma once

#include "core/define.h"
#include "simd/tier.h"

namespace dodona::ops {

using enum DType;

/// The router of DeepSeek V3: s = sigmoid(x), the best groups by the sum of their two best s + bias, the best experts of those groups by
/// s + bias, weights s over their sum; then the fused shared experts.
/// Source: sgl-kernel `moe_fused_gate`.
struct MoeFusedGate {
  Tensor input_tensor, bias, topk_weights, topk_ids;
  std::int64_t num_expert_group = 1, topk_group = 1, topk = 1, num_fused_shared_experts = 0;
  double routed_scaling_factor = 0.0;
  bool apply_routed_scaling_factor_on_output = false;

  static constexpr OpInfo info{"moe_fused_gate", Category::moe, Source::sgl_kernel};
  void describe(auto& op) {
    op.in("input_tensor", input_tensor, {f32, bf16, f16}, "T E").role(Role::logits).doc("router logits");
    op.in("bias", bias, same_as("input_tensor"), "E").doc("correction bias: steers the choice, not the weights");
    op.attr("num_expert_group", num_expert_group, between(1, 32)).required().doc("groups G of E/G consecutive experts");
    op.attr("topk_group", topk_group, between(1, 32)).required().doc("groups that are kept");
    op.attr("topk", topk, at_least(1)).required().doc("columns: chosen experts and fused shared experts");
    op.attr("num_fused_shared_experts", num_fused_shared_experts, between(0, 1024)).doc("last columns, with ids E, E+1...");
    op.attr("routed_scaling_factor", routed_scaling_factor)
        .doc("shared experts weigh the sum over it; not zero where it is used (0, the default upstream, stands for unused)");
    op.attr("apply_routed_scaling_factor_on_output", apply_routed_scaling_factor_on_output).doc("multiplies every weight by it");
    op.out("topk_weights", topk_weights, {f32}, "T topk").doc("weights of the columns; those of the chosen experts sum to 1");
    op.out("topk_ids", topk_ids, {i32}, "T topk").role(Role::expert_ids).judged(Judge::top_k).doc("experts by falling s + bias");
    op.symbol("E", {.minimum = 1, .maximum = 1024});
    op.rows_independent("T");
  }

  std::int64_t experts() const { return input_tensor.size(1); }
  /// Columns that are chosen.
  std::int64_t routed() const { return topk - num_fused_shared_experts; }
};

/// Rows of one call in vector code.
struct GateRows {
  const void *input, *bias;
  float* weights;
  std::int32_t* ids;
  std::int64_t rows;
  std::int64_t input_stride, weights_stride, ids_stride;  ///< from row to row; bytes for the input, elements for the outputs
  DType type;
  int experts, groups, kept_groups, routed, shared;
  double scaling;
  bool apply_scaling;
};
struct MoeFusedGateKernel {
  template <class Tier>
  static void run(const GateRows& call);
};

}  // namespace dodona::ops
