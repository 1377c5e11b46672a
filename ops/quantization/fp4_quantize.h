#pragma once

#include "core/define.h"
#include "ops/base/block_scales.h"

namespace dodona::ops {

using enum DType;

/// NVFP4 and MXFP4 quantization: e2m1 codes in blocks of 16 with an e4m3 scale each, or of 32 with a power of two, in any layout of scales.
/// Source: FlashInfer `fp4_quantize`.
struct Fp4Quantize {
  Tensor input, global_scale, x_q, sf;
  std::int64_t sf_vec_size = 16;
  bool sf_use_ue8m0 = false, is_sf_swizzled_layout = true, is_sf_8x4_layout = false, is_global_scale_inversed = false;
  std::string padding = "open";

  static constexpr OpInfo info{"fp4_quantize", Category::quantization, Source::flashinfer};
  void describe(auto& op) {
    op.signature("input, global_scale, sf_vec_size, sf_use_ue8m0, is_sf_swizzled_layout, is_sf_8x4_layout, is_global_scale_inversed");
    op.in("input", input, {bf16, f16, f8_e4m3}, "M... K").layout(Layout::contiguous).doc("leading dimensions count as one, M");
    op.in("global_scale", global_scale, {f32}, "1 | ")
        .role(Role::scale)
        .scales("input", 0, 0)
        .optional()
        .doc("encode scale, 448*6 / largest magnitude; MXFP4 of bf16 and f16 does not read it");
    op.attr("sf_vec_size", sf_vec_size, between(16, 32)).doc("elements of a block: 16 for NVFP4, 32 for MXFP4");
    op.attr("sf_use_ue8m0", sf_use_ue8m0).doc("scales are powers of two: MXFP4");
    describe_scale_layout(op, *this);
    describe_padding(op, *this);
    op.attr("is_global_scale_inversed", is_global_scale_inversed).doc("global_scale is the decode scale: its reciprocal is taken");
    op.out("x_q", x_q, {u8}, "M... K/2").layout(Layout::contiguous).judged(Judge::code).codes(f4_e2m1).doc("codes");
    op.out("sf", sf, {f8_e4m3, f8_e8m0}, scale_matrix("K/sf_vec_size"))
        .layout(Layout::contiguous)
        .judged(Judge::code)
        .padded()
        .doc("block scales: e4m3, with sf_use_ue8m0 e8m0");
    op.symbol("K", {.multiple_of = 16});
    op.rows_independent("M");
  }
};

}  // namespace dodona::ops
