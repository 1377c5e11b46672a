#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// The experts of the largest shares in a softmax over the router's logits, with those shares.
/// Source: sgl-kernel `topk_softmax`.
struct TopkSoftmax {
  Tensor gating_output, correction_bias, topk_weights, topk_ids;
  bool renormalize = false;
  double moe_softcapping = 0.0;

  static constexpr OpInfo info{"topk_softmax", Category::moe, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("topk_weights, topk_ids, gating_output, renormalize, moe_softcapping, correction_bias");
    op.in("gating_output", gating_output, {f32, bf16, f16}, "T E").role(Role::logits).doc("router logits; upstream's rows are contiguous");
    op.in("correction_bias", correction_bias, {f32}, "E")
        .layout(Layout::contiguous)
        .role(Role::weight)
        .on_request()
        .doc("added to the logits, behind the cap and before the softmax");
    op.attr("renormalize", renormalize).doc("weights are divided by their sum");
    op.attr("moe_softcapping", moe_softcapping, between(-1e6, 1e6)).doc("logits become cap * tanh(logit / cap); 0 for no cap");
    op.out("topk_weights", topk_weights, {f32}, "T topk").given().doc("falling; its columns say how many experts are chosen");
    op.out("topk_ids", topk_ids, {i32}, "T topk").role(Role::expert_ids).judged(Judge::top_k).doc("experts by falling share");
    op.symbol("E", {.minimum = 1, .maximum = 1024});
    op.symbol("topk", {.minimum = 1, .maximum = 1024});
    op.rows_independent("T");
  }

  std::int64_t experts() const { return gating_output.size(1); }
  std::int64_t topk() const { return topk_weights.size(1); }
};

}  // namespace dodona::ops
