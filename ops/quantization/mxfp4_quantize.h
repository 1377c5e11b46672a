#pragma once

#include "core/define.h"
#include "ops/base/block_scales.h"

namespace dodona::ops {

using enum DType;

/// MXFP4 quantization: e2m1 codes in blocks of 32, a power of two for each, in any layout of scales.
/// Source: FlashInfer `mxfp4_quantize`.
struct Mxfp4Quantize {
  Tensor a, x_q, sf;
  bool is_sf_swizzled_layout = true, is_sf_8x4_layout = false;
  std::string padding = "open";

  static constexpr OpInfo info{"mxfp4_quantize", Category::quantization, Source::flashinfer};
  void describe(auto& op) {
    op.in("a", a, {bf16, f16}, "M... K").layout(Layout::contiguous).doc("leading dimensions count as one, M");
    describe_scale_layout(op, *this);
    describe_padding(op, *this);
    op.out("x_q", x_q, {u8}, "M... K/2").layout(Layout::contiguous).judged(Judge::code).codes(f4_e2m1).doc("codes");
    op.out("sf", sf, {f8_e8m0}, scale_matrix("K/32")).layout(Layout::contiguous).judged(Judge::code).padded().doc("block scales");
    op.symbol("K", {.multiple_of = 32});
    op.rows_independent("M");
  }
};

}  // namespace dodona::ops
