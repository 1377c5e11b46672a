#pragma once

#include "ops/draws/sampler.h"

namespace dodona::ops {

/// One token for each row, drawn by its probability among the fewest of the largest that add up to top_p.
/// Source: sgl-kernel `top_p_sampling_from_probs` (FlashInfer `TopPSamplingFromProbKernel`).
struct TopPSamplingFromProbs {
  Tensor probs, indices, top_p_arr, samples;
  double top_p = 0;
  bool deterministic = true;
  std::int64_t philox_seed = 0, philox_offset = 0;

  static constexpr OpInfo info{"top_p_sampling_from_probs", Category::sampling, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("probs, top_p, indices, deterministic");
    describe_sampled_rows(op, *this, "probabilities, which add up to 1");
    op.in("top_p", top_p_arr, {f32}, "U")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .on_request()
        .doc("the bound of each row of probs, in the place of one number for all; above 0");
    op.attr("top_p", top_p).doc("bound of the sum of larger probabilities; above 0; narrowed to fp32");
    describe_draws(op, *this);
  }
};

}  // namespace dodona::ops
