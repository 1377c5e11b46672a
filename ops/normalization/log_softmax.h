#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// output[t,n] = input[t,n] - max - log(sum over n of exp(input[t,n] - max)), each row whatever the others.
/// Source: SGLang `batch_invariant_ops.log_softmax` (Triton).
struct LogSoftmax {
  Tensor input, output;
  std::int64_t dim = -1;

  static constexpr OpInfo info{"log_softmax", Category::normalization, Source::triton};
  void describe(auto& op) {
    op.signature("input, dim");
    op.in("input", input, {bf16, f16, f32}, "T... N").layout(Layout::contiguous).role(Role::logits).doc("logits, one row per token");
    op.attr("dim", dim, between(-1, 7)).doc("the last dimension: -1, or its number");
    op.out("output", output, same_as("input"), "T... N").layout(Layout::contiguous).doc("rounded once");
    op.symbol("N", {.minimum = 1});
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
