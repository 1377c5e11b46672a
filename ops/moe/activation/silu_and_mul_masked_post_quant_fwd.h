#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// silu(gate) * up of the first masked_m rows of each expert, quantized in groups: what lies between DeepGEMM's masked products.
/// Source: sglang `ep_moe/kernels.py`, `silu_and_mul_masked_post_quant_fwd` (Triton), with scales in fp32.
struct SiluAndMulMaskedPostQuantFwd {
  Tensor input, output, output_scale, masked_m;
  std::int64_t quant_group_size = 128;

  static constexpr OpInfo info{"silu_and_mul_masked_post_quant_fwd", Category::moe, Source::triton};
  void describe(auto& op) {
    op.signature("input, output, output_scale, quant_group_size, masked_m, scale_ue8m0=");
    op.in("input", input, {bf16}, "E M 2*N").layout(Layout::contiguous).doc("gate and up, halves of each row");
    op.in("masked_m", masked_m, {i32}, "E")
        .layout(Layout::contiguous)
        .role(Role::positions, "M+1")
        .doc("rows of each expert that there are");
    op.attr("quant_group_size", quant_group_size, between(16, 1 << 16)).doc("numbers that share a scale");
    op.out("output", output, {f8_e4m3}, "E M N")
        .layout(Layout::contiguous)
        .judged(Judge::code)
        .padded()
        .doc("codes; rows that are not there are unspecified");
    op.out("output_scale", output_scale, {f32}, "E M ceil(N/quant_group_size)")
        .layout(Layout::contiguous)
        .padded()
        .scales("output", 1, 128)
        .doc("what a code's value is multiplied with");
    op.symbol("N", {.multiple_of = 16});
  }
};

}  // namespace dodona::ops
