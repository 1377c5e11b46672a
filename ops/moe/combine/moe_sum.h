#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// output_tensor[t,d] = sum over the experts j of input_tensor[t,j,d]. Of two, three or four experts each sum is rounded to the type.
/// Source: sgl-kernel `moe_sum`.
struct MoeSum {
  Tensor input_tensor, output_tensor;

  static constexpr OpInfo info{"moe_sum", Category::moe, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("input_tensor, output_tensor");
    op.in("input_tensor", input_tensor, {bf16, f16, f32}, "T topk D")
        .doc("rows of each token's experts, router weights already in them; upstream's kernels take contiguous ones only");
    op.out("output_tensor", output_tensor, same_as("input_tensor"), "T D").doc("one row per token");
    op.rows_independent("T");
  }

  std::int64_t topk() const { return input_tensor.size(1); }
  /// Whether upstream has a kernel of its own for so many experts; all others it leaves to torch.
  bool is_rounded_between() const { return topk() >= 2 && topk() <= 4; }
};

}  // namespace dodona::ops
