#pragma once

#include "ops/schemes/qserve.h"

namespace dodona::ops {

/// Product of int8 activations with weights of four bits that have a scale and a zero point for each channel:
/// out_feats[m,n] = ascales[m] * wscales[n] * sum over k of in_feats * kernel - a_ssums[m] * w_szs[n].
/// Source: sgl-kernel `qserve_w4a8_per_chn_gemm` (QServe).
struct QserveW4a8PerChnGemm {
  Tensor in_feats, kernel, wscales, ascales, w_szs, a_ssums, out_feats;

  static constexpr OpInfo info{"qserve_w4a8_per_chn_gemm", Category::gemm, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("in_feats, kernel, wscales, ascales, w_szs, a_ssums, out_feats");
    describe_qserve_operands(op, *this);
    describe_qserve_scales(op, *this);
    op.in("w_szs", w_szs, {f16}, "N | N 1").layout(Layout::contiguous).doc("each channel's zero point times its scale");
    op.in("a_ssums", a_ssums, {f16}, "M | M 1").layout(Layout::contiguous).doc("each token's sum before it was quantized");
    describe_qserve_output(op, *this);
    op.symbol("K", {.multiple_of = 64, .maximum = 131008});
  }
};

}  // namespace dodona::ops
