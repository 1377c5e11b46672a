#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// output[r] = sum over the ranks s of input[s, part r]: each rank is given its part of the sums.
/// Source: `torch.distributed.reduce_scatter_tensor`, which is NCCL's ncclReduceScatter.
struct ReduceScatterTensor {
  Tensor input, output;
  std::string order = "any";

  static constexpr OpInfo info{"reduce_scatter_tensor", Category::utility, Source::torch};
  void describe(auto& op) {
    op.signature("output, input");
    op.in("input", input, {bf16, f16, f32}, "R R*T H").layout(Layout::contiguous).doc("the terms of each rank, for all parts");
    op.choice("order", order, {"any", "ring"})
        .doc(
            "any: within a budget; ring: NCCL's ring of rising ranks, where part r begins with rank r + 1, ends with rank r, and travels "
            "in "
            "the type");
    op.out("output", output, same_as("input"), "R T H").doc("what each rank is given");
    op.symbol("R", {.minimum = 1, .maximum = 1024});
  }

  std::int64_t ranks() const { return input.size(0); }
  std::int64_t part() const { return output.size(1) * output.size(2); }
};

}  // namespace dodona::ops
