#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// output[e,m] = e4m3(T(silu(gate)) * up / scale) of the first masked_m rows of each expert: what lies between the two W4A8 products behind
/// DeepEP's low-latency dispatch. Source: sglang `ep_moe/kernels.py`, `silu_and_mul_masked_post_per_tensor_quant_fwd` (Triton).
struct SiluAndMulMaskedPostPerTensorQuantFwd {
  Tensor input, output, masked_m, scale;

  static constexpr OpInfo info{"silu_and_mul_masked_post_per_tensor_quant_fwd", Category::moe, Source::triton};
  void describe(auto& op) {
    op.signature("input, output, masked_m, scale");
    op.in("input", input, {bf16, f16}, "E M 2*N").layout(Layout::contiguous).doc("gate and up, halves of each row");
    op.in("masked_m", masked_m, {i32}, "E")
        .layout(Layout::contiguous)
        .role(Role::positions, "M+1")
        .doc("rows of each expert that there are");
    op.in("scale", scale, {f32}, "1").role(Role::scale).doc("scale of all codes: what a code's value is multiplied with");
    op.out("output", output, {f8_e4m3}, "E M N")
        .layout(Layout::contiguous)
        .judged(Judge::code)
        .padded()
        .doc("codes; rows that are not there are unspecified (upstream leaves them as they were)");
  }
};

}  // namespace dodona::ops
