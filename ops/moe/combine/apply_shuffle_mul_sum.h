#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// output[i] = sum over j < topk of factors[i*topk + j] * input[permutation[i*topk + j]]: the experts' rows of each token, weighted.
/// Without factors the rows are added as they are. Upstream launches no thread for D below 16.
/// Source: sgl-kernel `apply_shuffle_mul_sum`.
struct ApplyShuffleMulSum {
  Tensor input, permutation, factors, output;

  static constexpr OpInfo info{"apply_shuffle_mul_sum", Category::moe, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("input, output, permutation, factors");
    op.in("input", input, {bf16, f16, f32}, "R D").doc("rows sorted by expert");
    op.in("permutation", permutation, {i32}, "M*topk").role(Role::indices, "R").doc("row of each token's experts, see prepare_moe_input");
    op.in("factors", factors, same_as("input"), "M*topk | M topk").optional().doc("router weights, rounded to the type by the caller");
    op.out("output", output, same_as("input"), "M D").given().doc("one row per token; M says how many experts each has");
  }

  std::int64_t topk() const { return output.size(0) > 0 ? permutation.size(0) / output.size(0) : 0; }
};

}  // namespace dodona::ops
