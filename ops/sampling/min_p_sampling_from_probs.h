#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

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
    op.in("probs", probs, {f32}, "U V").layout(Layout::contiguous).role(Role::probs).doc("probabilities, which need not add up to 1");
    op.in("indices", indices, {i32}, "B")
        .layout(Layout::contiguous)
        .role(Role::positions, "U")
        .on_request()
        .doc("the row of probs that each output row draws from; without them its own");
    op.in("min_p", min_p_arr, {f32}, "B")
        .layout(Layout::contiguous)
        .role(Role::coins)
        .on_request()
        .doc("the share of each output row, in the place of one number for all");
    op.attr("min_p", min_p, between(0, 1)).doc("share of the largest probability that a token must have; narrowed to fp32");
    op.attr("deterministic", deterministic).doc("whether the GPU's running sums are upstream's own scan or its library's");
    op.attr("philox_seed", philox_seed).doc("key of the stream, read as unsigned");
    op.attr("philox_offset", philox_offset, at_least(0)).doc("position in the stream; output row b draws from subsequence b");
    op.out("samples", samples, {i32}, "B").layout(Layout::contiguous).judged(Judge::top_k).doc("a token of each output row");
    op.symbol("V", {.minimum = 1});
  }
};

}  // namespace dodona::ops
