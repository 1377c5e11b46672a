#pragma once

#include "core/define.h"
#include "ops/base/block_scales.h"

namespace dodona::ops {

using enum DType;

/// MXFP8 quantization: e4m3 codes in blocks of 32 with a power of two each, in any layout of scales.
/// Source: FlashInfer `mxfp8_quantize`.
struct Mxfp8Quantize {
  Tensor input, x_q, sf;
  bool is_sf_swizzled_layout = true, is_sf_8x4_layout = false;
  std::int64_t alignment = 32;
  std::string padding = "open";

  static constexpr OpInfo info{"mxfp8_quantize", Category::quantization, Source::flashinfer};
  void describe(auto& op) {
    op.signature("input, is_sf_swizzled_layout, alignment");
    op.in("input", input, {bf16, f16, f32}, "M... K")
        .layout(Layout::contiguous)
        .doc("leading dimensions count as one, M; upstream takes f32 on the host");
    describe_scale_layout(op, *this);
    describe_padding(op, *this);
    op.attr("alignment", alignment, between(32, 1 << 20)).doc("rows of x_q are filled up with zeros to a multiple of it, itself one of 32");
    op.out("x_q", x_q, {f8_e4m3}, "M... align(K,alignment)").layout(Layout::contiguous).judged(Judge::code).doc("codes");
    op.out("sf", sf, {f8_e8m0}, scale_matrix("align(K,alignment)/32"))
        .layout(Layout::contiguous)
        .judged(Judge::code)
        .padded()
        .doc("block scales; 0 where x_q was filled up");
    op.symbol("K", {.multiple_of = 32});
    op.rows_independent("M");
  }
};

}  // namespace dodona::ops
