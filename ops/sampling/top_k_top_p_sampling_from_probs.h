#pragma once

#include "ops/draws/sampler.h"

namespace dodona::ops {

/// One token for each row, drawn by its probability among those that both top_k and top_p keep.
/// Source: sgl-kernel `top_k_top_p_sampling_from_probs` (FlashInfer `TopKTopPSamplingFromProbKernel`; `top_k_first` is
/// `TopKRenormProbKernel` and `TopPSamplingFromProbKernel`).
struct TopKTopPSamplingFromProbs {
  Tensor probs, indices, top_k_arr, top_p_arr, samples;
  std::int64_t top_k = 0;
  double top_p = 0;
  std::string filter_apply_order = "top_k_first", search = "thirds";
  bool deterministic = true;
  std::int64_t philox_seed = 0, philox_offset = 0;

  static constexpr OpInfo info{"top_k_top_p_sampling_from_probs", Category::sampling, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("probs, top_k, top_p, indices, filter_apply_order, deterministic");
    describe_sampled_rows(op, *this, "probabilities, which add up to 1");
    op.in("top_k", top_k_arr, {i32}, "U")
        .layout(Layout::contiguous)
        .role(Role::lengths, "V")
        .may_stray()
        .on_request()
        .doc("how many each row of probs keeps, in the place of one number for all; read as unsigned: -1 keeps everything; not 0");
    op.in("top_p", top_p_arr, {f32}, "U")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .on_request()
        .doc("the bound of each row of probs, in the place of one number for all; above 0");
    op.attr("top_k", top_k, between(-1, 4294967295.0)).doc("fewer than so many are larger than the token; read as unsigned; not 0");
    op.attr("top_p", top_p).doc("bound of the sum of larger probabilities; above 0; narrowed to fp32");
    op.choice("filter_apply_order", filter_apply_order, {"top_k_first", "joint"})
        .doc("top_k_first: the row is cut to top_k and renormalised, then top_p; joint: both of the row itself");
    describe_search(op, search);
    describe_draws(op, *this);
  }
};

}  // namespace dodona::ops
