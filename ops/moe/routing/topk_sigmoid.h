#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// The experts of the largest sigmoid(x) + bias, with weights (sigmoid(x) + bias) - bias as fp32 has it: what a large bias cuts off is
/// lost. Source: sgl-kernel `topk_sigmoid`.
struct TopkSigmoid {
  Tensor gating_output, correction_bias, topk_weights, topk_ids;
  bool renormalize = false;

  static constexpr OpInfo info{"topk_sigmoid", Category::moe, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("topk_weights, topk_ids, gating_output, renormalize, correction_bias");
    op.in("gating_output", gating_output, {f32, bf16, f16}, "T E").role(Role::logits).doc("router logits; upstream's rows are contiguous");
    op.in("correction_bias", correction_bias, {f32}, "E")
        .layout(Layout::contiguous)
        .role(Role::weight)
        .on_request()
        .doc("steers the choice; subtracted from the weights again");
    op.attr("renormalize", renormalize).doc("weights are divided by their sum");
    op.out("topk_weights", topk_weights, {f32}, "T topk").given().doc("in order of choice; its columns say how many experts are chosen");
    op.out("topk_ids", topk_ids, {i32}, "T topk").role(Role::expert_ids).judged(Judge::top_k).doc("experts by falling score + bias");
    op.symbol("E", {.minimum = 1, .maximum = 1024});
    op.symbol("topk", {.minimum = 1, .maximum = 1024});
    op.rows_independent("T");
  }

  std::int64_t experts() const { return gating_output.size(1); }
  std::int64_t topk() const { return topk_weights.size(1); }
};

}  // namespace dodona::ops
