#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// A whole tensor to e4m3 with one scale: output_q = e4m3(input * (1 / output_s)). Static: output_s is given. Dynamic: output_s is raised
/// to max |input| / 448, so that whoever calls sets it to 0 (or to the least scale that is wanted) before.
/// Source: sgl-kernel `sgl_per_tensor_quant_fp8`; with divide=ieee and a first scale of 1e-12 / 448 sglang `per_tensor_quant_mla_fp8` and,
/// of weights, `input_to_float8`.
struct SglPerTensorQuantFp8 {
  Tensor input, output_q, output_s;
  bool is_static = false;
  std::string divide = "rcp";

  static constexpr OpInfo info{"sgl_per_tensor_quant_fp8", Category::quantization, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("input, output_q, output_s, is_static");
    op.in("input", input, {bf16, f16, f32}, "T... H").doc("values; upstream's kernel takes contiguous ones only");
    op.attr("is_static", is_static).doc("the scale is output_s as it is, and stays; otherwise output_s is raised to what input needs");
    op.choice("divide", divide, {"rcp", "ieee"})
        .doc("how the scale is divided by 448: rcp: a product with fl32(1/448), as fast-math builds do; ieee: a true division");
    op.out("output_q", output_q, {f8_e4m3}, "T... H").layout(Layout::contiguous).judged(Judge::code).doc("codes");
    op.inout("output_s", output_s, {f32}, "1")
        .scales("output_q", 0, 0)
        .role(Role::scale)
        .layout(Layout::contiguous)
        .doc("what a code's value is multiplied with to give it back; before a dynamic call 0, for what is larger already stays");
  }
};

}  // namespace dodona::ops
