#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// output_tensor[t,d] = routed_scaling_factor * sum over the experts j of input_tensor[t,j,d].
/// Source: sgl-kernel `moe_sum_reduce`, and sglang's Triton kernel of that name.
struct MoeSumReduce {
  Tensor input_tensor, output_tensor;
  double routed_scaling_factor = 0.0;
  std::string kernel = "sgl_kernel", order = "any";

  static constexpr OpInfo info{"moe_sum_reduce", Category::moe, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("input_tensor, output_tensor, routed_scaling_factor");
    op.in("input_tensor", input_tensor, {bf16, f16, f32}, "T topk D")
        .doc("rows of each token's experts, router weights already in them; upstream's kernels take contiguous ones only");
    op.attr("routed_scaling_factor", routed_scaling_factor)
        .required()
        .doc("factor of the sums, narrowed to fp32; 1 where the router weights have it. Upstream's default is 0, which gives zeros");
    op.choice("kernel", kernel, {"sgl_kernel", "triton"})
        .doc("whose arithmetic: the build of sgl_kernel flushes denormals, Triton's keeps them");
    op.choice("order", order, {"any", "ascending"})
        .doc("any: within the budget of a sum in any order; ascending: the bits of both kernels, which add the experts in order");
    op.out("output_tensor", output_tensor, same_as("input_tensor"), "T D").doc("one row per token");
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
