#pragma once

#include "core/define.h"
#include "ops/base/block_scales.h"

namespace dodona::ops {

using enum DType;

/// NVFP4 quantization: e2m1 codes in blocks of 16, an e4m3 scale for each block, in the layout that FP4 matrix products read.
/// Source: sgl-kernel `scaled_fp4_quant`; with zero_block=amax FlashInfer `fp4_quantize`.
struct ScaledFp4Quant {
  Tensor input, input_global_scale, output, output_scale;
  std::string zero_block = "scale", padding = "open";

  static constexpr OpInfo info{"scaled_fp4_quant", Category::quantization, Source::sgl_kernel};
  void describe(auto& op) {
    op.in("input", input, {bf16, f16}, "M... K").layout(Layout::contiguous).doc("leading dimensions count as one, M");
    op.in("input_global_scale", input_global_scale, {f32}, "1 | ")
        .role(Role::scale)
        .scales("input", 0, 0)
        .doc("encode scale, 448*6 / largest magnitude");
    op.choice("zero_block", zero_block, {"scale", "amax"})
        .doc("when all codes of a block become zero: scale: when its scale rounds to zero; amax: when its elements are zero")
        .dialect("flashinfer", "amax");
    describe_padding(op, *this);
    op.out("output", output, {u8}, "M K/2").layout(Layout::contiguous).judged(Judge::code).codes(f4_e2m1).doc("codes");
    op.out("output_scale", output_scale, {f8_e4m3}, "align(M,128) align(K/16,4)")
        .layout(Layout::contiguous)
        .judged(Judge::code)
        .padded()
        .scales("output", 1, 16, ScaleOrder::swizzled_128x4)
        .doc("block scales");
    op.symbol("K", {.multiple_of = 16});
    op.rows_independent("M");
  }
};

}  // namespace dodona::ops
