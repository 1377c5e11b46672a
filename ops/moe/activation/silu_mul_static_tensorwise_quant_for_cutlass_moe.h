#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// output[r] = e4m3(silu(gate) * up / scale) of the rows that there are: what lies between the two W4A8 products.
/// Source: sglang `ep_moe/kernels.py`, `silu_mul_static_tensorwise_quant_for_cutlass_moe` (Triton).
struct SiluMulStaticTensorwiseQuantForCutlassMoe {
  Tensor input, output, scale, num_tokens_tensor;

  static constexpr OpInfo info{"silu_mul_static_tensorwise_quant_for_cutlass_moe", Category::moe, Source::triton};
  void describe(auto& op) {
    op.signature("input, output, scale, num_tokens_tensor, expected_num_tokens=, intermediate_size=");
    op.in("input", input, {bf16, f16, f32}, "R 2*N").layout(Layout::contiguous).doc("gate and up, halves of each row");
    op.in("scale", scale, {f32}, "1").role(Role::scale).doc("scale of all codes: what a code's value is multiplied with");
    op.in("num_tokens_tensor", num_tokens_tensor, {i32}, "1")
        .role(Role::positions, "R+1")
        .doc("rows that there are; upstream gives the end of the last expert's");
    op.out("output", output, {f8_e4m3}, "R N")
        .layout(Layout::contiguous)
        .judged(Judge::code)
        .padded()
        .doc("codes; rows that are not there are unspecified (upstream leaves them as they were)");
  }
};

}  // namespace dodona::ops
