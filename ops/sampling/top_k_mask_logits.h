#pragma once

#include "ops/draws/sampler.h"

namespace dodona::ops {

using enum DType;

/// The top_k largest logits of each row, with all that equal the last of them; -infinity for the others.
/// Source: sgl-kernel `top_k_mask_logits` (FlashInfer `TopKMaskLogitsKernel`).
struct TopKMaskLogits {
  Tensor logits, top_k_arr, mask_logits;
  std::int64_t top_k = 0;
  std::string search = "thirds";

  static constexpr OpInfo info{"top_k_mask_logits", Category::sampling, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("logits, top_k");
    op.in("logits", logits, {f32}, "B V").layout(Layout::contiguous).role(Role::logits).doc("one row for each request; below infinity");
    op.in("top_k", top_k_arr, {i32}, "B")
        .layout(Layout::contiguous)
        .role(Role::lengths, "V")
        .may_stray()
        .on_request()
        .doc("how many each row keeps, in the place of one number for all; read as unsigned: -1 keeps everything");
    op.attr("top_k", top_k, between(-1, 4294967295.0)).doc("how many are kept; V or more: all");
    describe_search(op, search);
    op.out("mask_logits", mask_logits, {f32}, "B V")
        .layout(Layout::contiguous)
        .role(Role::logits)
        .judged(Judge::exact)
        .doc("copies, and -infinity");
    op.symbol("V", {.minimum = 1});
    op.rows_independent("B");
  }
};

}  // namespace dodona::ops
