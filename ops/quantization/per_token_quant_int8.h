#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Every row to int8 with a scale of its own: scales[m] = max_k |x[m,k]| / 127, x_q[m,k] = x[m,k] * (127 / max), half away from zero.
/// Source: SGLang `per_token_quant_int8` (Triton).
struct PerTokenQuantInt8 {
  Tensor x, x_q, scales, x_sum;
  DType scale_dtype = f32;
  bool cal_sum = false;

  static constexpr OpInfo info{"per_token_quant_int8", Category::quantization, Source::triton};
  void describe(auto& op) {
    op.in("x", x, {bf16, f16, f32}, "M... K").layout(Layout::contiguous).doc("one token per row");
    op.dtype_attr("scale_dtype", scale_dtype, {f32, f16, bf16}).doc("element type of scales");
    op.attr("cal_sum", cal_sum).doc("also x_sum");
    op.out("x_q", x_q, {i8}, "M... K").layout(Layout::contiguous).judged(Judge::code).doc("codes, -127 to 127");
    op.out("scales", scales, dtype_of_attr("scale_dtype"), "M... 1")
        .layout(Layout::contiguous)
        .scales("x_q", 1, 0)
        .doc("what a code is multiplied with to give its element back");
    op.out("x_sum", x_sum, same_as("x"), "M...").layout(Layout::contiguous).when("cal_sum").doc("sum of each row before quantization");
    op.symbol("K", {.minimum = 1});
    op.rows_independent("M");
  }
};

}  // namespace dodona::ops
