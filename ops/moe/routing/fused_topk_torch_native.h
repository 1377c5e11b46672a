#pragma once

#include "ops/routing/native_router.h"

namespace dodona::ops {

/// The router without groups in torch: the best experts by score, or by score and bias.
/// Source: sglang `fused_topk_torch_native` (layers/moe/topk.py).
struct FusedTopkTorchNative {
  Tensor gating_output, correction_bias, topk_weights, topk_ids;
  std::int64_t topk = 1;
  bool renormalize = false;
  std::string scoring_func = "softmax";

  static constexpr OpInfo info{"fused_topk_torch_native", Category::moe, Source::torch};
  void describe(auto& op) {
    op.in("gating_output", gating_output, {f32, bf16, f16}, "T E").role(Role::logits).doc("router logits");
    op.in("correction_bias", correction_bias, {f32}, "E")
        .layout(Layout::contiguous)
        .role(Role::weight)
        .on_request()
        .doc("steers the choice alone; with it scores have the logits' type, without it they are fp32");
    op.choice("scoring_func", scoring_func, {"softmax", "sigmoid"}).doc("what makes scores of logits");
    describe_native_outputs(op, *this);
  }

  NativeRouter router() const {
    return {gating_output,
            correction_bias,
            topk_weights,
            topk_ids,
            scoring_func == "softmax",
            eager_roundings(correction_bias.defined() ? gating_output.dtype() : f32),
            1,
            1,
            true,
            0,
            renormalize,
            0.0,
            false};
  }
};

}  // namespace dodona::ops
