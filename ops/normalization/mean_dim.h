#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// output[m,k] = mean over n of input[m,n,k], each mean whatever the others: a tensor's dimensions before the one that is reduced count as
/// one, M, and those behind it as K.
/// Source: SGLang `batch_invariant_ops.mean_dim` (Triton).
struct MeanDim {
  Tensor input, output;

  static constexpr OpInfo info{"mean_dim", Category::normalization, Source::triton};
  void describe(auto& op) {
    op.signature("input");
    op.in("input", input, {bf16, f16, f32}, "M N K").layout(Layout::contiguous).doc("in the middle the dimension that is reduced");
    op.out("output", output, same_as("input"), "M K").layout(Layout::contiguous).doc("rounded once");
    op.symbol("N", {.minimum = 1});
    op.rows_independent("M");
  }
};

}  // namespace dodona::ops
