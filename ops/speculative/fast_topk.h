#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// The topk largest numbers of each row in falling order, and where they stand. NaN counts as larger than any number; zeros of either
/// sign are equal.
/// Source: sgl-kernel `fast_topk`: torch.max for topk = 1, else torch.topk.
struct FastTopk {
  Tensor values, out_values, indices;
  std::int64_t topk = 0, dim = -1;

  static constexpr OpInfo info{"fast_topk", Category::speculative, {Source::sgl_kernel, Source::torch}};
  void describe(auto& op) {
    op.signature("values, topk, dim");
    op.in("values", values, {f32, bf16, f16}, "T... V").role(Role::logits).doc("rows of scores or probabilities");
    op.attr("topk", topk, between(0, 1 << 30)).required().doc("how many, at most V");
    op.attr("dim", dim, between(-1, 8)).doc("the last dimension, as -1 or by its number");
    op.out("out_values", out_values, same_as("values"), "T... topk").doc("upstream's values: the largest, falling");
    op.out("indices", indices, {i64}, "T... topk").judged(Judge::top_k).doc("where they stand in their row");
    op.rows_independent("T");
  }

  std::int64_t width() const { return values.size(-1); }
};

}  // namespace dodona::ops
