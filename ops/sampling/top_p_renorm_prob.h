#pragma once

#include "ops/draws/sampler.h"

namespace dodona::ops {

using enum DType;

/// The fewest of the largest probabilities of each row that add up to top_p, with all that equal the last of them, divided by their
/// sum; zero for the others. Source: sgl-kernel `top_p_renorm_prob` (FlashInfer `TopPRenormProbKernel`).
struct TopPRenormProb {
  Tensor probs, top_p_arr, renorm_probs;
  double top_p = 0;

  std::string search = "thirds";

  static constexpr OpInfo info{"top_p_renorm_prob", Category::sampling, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("probs, top_p");
    op.in("probs", probs, {f32}, "B V")
        .layout(Layout::contiguous)
        .role(Role::probs)
        .doc("one row for each request; finite where top_p is below 1");
    op.in("top_p", top_p_arr, {f32}, "B")
        .layout(Layout::contiguous)
        .role(Role::coins)
        .on_request()
        .doc("the bound of each row, in the place of one number for all");
    op.attr("top_p", top_p)
        .doc("the bound, not relative to the row's sum; narrowed to fp32; 1 or more: everything is kept; 0 or less: the largest");
    describe_search(op, search);
    op.out("renorm_probs", renorm_probs, {f32}, "B V").layout(Layout::contiguous).role(Role::probs).doc("rounded once");
    op.symbol("V", {.minimum = 1});
    op.rows_independent("B");
  }
};

}  // namespace dodona::ops
