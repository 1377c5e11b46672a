#pragma once

#include "ops/draws/sampler.h"

namespace dodona::ops {

/// One token for each row, drawn by its probability among those of at least min_p times the row's largest.
/// Source: sgl-kernel `min_p_sampling_from_probs` (FlashInfer `MinPSamplingFromProbKernel`).
struct MinPSamplingFromProbs {
  Tensor probs, indices, min_p_arr, samples;
  double min_p = 0;
  bool deterministic = true;
  std::int64_t philox_seed = 0, philox_offset = 0;

  static constexpr OpInfo info{"min_p_sampling_from_probs", Category::sampling, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("probs, min_p, indices, deterministic");
    describe_sampled_rows(op, *this, "probabilities, which need not add up to 1");
    op.in("min_p", min_p_arr, {f32}, "B")
        .layout(Layout::contiguous)
        .role(Role::coins)
        .on_request()
        .doc("the share of each output row, in the place of one number for all");
    op.attr("min_p", min_p, between(0, 1)).doc("share of the largest probability that a token must have; narrowed to fp32");
    describe_draws(op, *this);
  }
};

}  // namespace dodona::ops
