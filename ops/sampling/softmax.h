#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// probs[b,v] = exp(x[b,v] - max) / sum over v of exp(x[b,v] - max), x = logits / temperature. Source: FlashInfer `softmax`.
struct Softmax {
  Tensor logits, temperature_arr, probs;
  double temperature = 1.0;

  static constexpr OpInfo info{"softmax", Category::sampling, Source::flashinfer};
  void describe(auto& op) {
    op.signature("logits, temperature");
    op.in("logits", logits, {f32}, "B V").layout(Layout::contiguous).role(Role::logits).doc("one row for each request; below infinity");
    op.in("temperature", temperature_arr, {f32}, "B")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .on_request()
        .doc("the temperature of each row, in the place of one number for all");
    op.attr("temperature", temperature).doc("logits are divided by it; narrowed to fp32; 0 makes all logits 0, as upstream's kernel does");
    op.out("probs", probs, {f32}, "B V").layout(Layout::contiguous).role(Role::probs).doc("rounded once");
    op.symbol("V", {.minimum = 1});
    op.rows_independent("B");
  }
};

}  // namespace dodona::ops
