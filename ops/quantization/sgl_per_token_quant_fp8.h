#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Every row to e4m3 with a scale of its own: output_s[m] = max_k |input[m,k]| / 448, output_q[m,k] = e4m3(input[m,k] * (1 / output_s[m])).
/// Source: sgl-kernel `sgl_per_token_quant_fp8`.
struct SglPerTokenQuantFp8 {
  Tensor input, output_q, output_s;
  std::string divide = "rcp";

  static constexpr OpInfo info{"sgl_per_token_quant_fp8", Category::quantization, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("input, output_q, output_s");
    op.in("input", input, {bf16, f16, f32}, "M K").layout(Layout::contiguous).doc("one token per row");
    op.choice("divide", divide, {"rcp", "ieee"})
        .doc("how the scale is divided by 448: rcp: a product with fl32(1/448), as fast-math builds do; ieee: a true division");
    op.out("output_q", output_q, {f8_e4m3}, "M K").layout(Layout::contiguous).judged(Judge::code).doc("codes");
    op.out("output_s", output_s, {f32}, "M 1 | M")
        .layout(Layout::contiguous)
        .scales("output_q", 1, 0)
        .doc("what a code's value is multiplied with to give it back");
    op.symbol("K", {.multiple_of = 4});
    op.rows_independent("M");
  }
};

}  // namespace dodona::ops
