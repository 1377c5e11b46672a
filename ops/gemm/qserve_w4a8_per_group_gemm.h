#pragma once

#include "ops/schemes/qserve.h"

namespace dodona::ops {

/// Product of int8 activations with weights of four bits that become int8 by a scale and a zero for each channel and 128 of K:
/// out_feats[m,n] = ascales[m] * wscales[n] * sum over k of in_feats * int8(kernel * scales_i8 + zeros).
/// Source: sgl-kernel `qserve_w4a8_per_group_gemm` (QServe).
struct QserveW4a8PerGroupGemm {
  Tensor in_feats, kernel, zeros, scales_i8, wscales, ascales, out_feats;

  static constexpr OpInfo info{"qserve_w4a8_per_group_gemm", Category::gemm, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("in_feats, kernel, zeros, scales_i8, wscales, ascales, out_feats");
    describe_qserve_operands(op, *this);
    op.in("zeros", zeros, {i8}, "K/128 N").layout(Layout::contiguous).doc("less the zero point times the scale, in the order of scales_i8");
    op.in("scales_i8", scales_i8, {i8}, "K/128 N")
        .layout(Layout::contiguous)
        .kin("0 to 17")
        .doc("0 to 17; of each 32 channels position p is channel (p mod 4) * 8 + p / 4");
    describe_qserve_scales(op, *this);
    describe_qserve_output(op, *this);
    op.symbol("K", {.multiple_of = 128, .maximum = 131008});
  }
};

}  // namespace dodona::ops
