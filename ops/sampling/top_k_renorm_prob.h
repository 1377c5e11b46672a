#pragma once

#include "ops/draws/sampler.h"

namespace dodona::ops {

using enum DType;

/// The top_k largest probabilities of each row, with all that equal the last of them, divided by their sum; zero for the others.
/// Source: sgl-kernel `top_k_renorm_prob` (FlashInfer `TopKRenormProbKernel`).
struct TopKRenormProb {
  Tensor probs, top_k_arr, renorm_probs;
  std::int64_t top_k = 0;

  std::string search = "thirds";

  static constexpr OpInfo info{"top_k_renorm_prob", Category::sampling, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("probs, top_k");
    op.in("probs", probs, {f32}, "B V").layout(Layout::contiguous).role(Role::probs).doc("one row for each request; finite");
    op.in("top_k", top_k_arr, {i32}, "B")
        .layout(Layout::contiguous)
        .role(Role::lengths, "V")
        .may_stray()
        .on_request()
        .doc("how many each row keeps, in the place of one number for all; read as unsigned: -1 keeps everything");
    op.attr("top_k", top_k, between(-1, 4294967295.0)).doc("how many are kept; V or more: the row is left as it is; 0 counts as 1");
    describe_search(op, search);
    op.out("renorm_probs", renorm_probs, {f32}, "B V").layout(Layout::contiguous).role(Role::probs).doc("rounded once");
    op.symbol("V", {.minimum = 1});
    op.rows_independent("B");
  }
};

}  // namespace dodona::ops
