#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Router logits of a few tokens: output = hidden_states router_weights^T.
/// Source: sgl-kernel `dsv3_router_gemm`.
struct Dsv3RouterGemm {
  Tensor hidden_states, router_weights, output;
  DType out_dtype = bf16;

  static constexpr OpInfo info{"dsv3_router_gemm", Category::gemm, Source::sgl_kernel};
  void describe(auto& op) {
    op.in("hidden_states", hidden_states, {bf16}, "T 7168").layout(Layout::contiguous).doc("one row per token, 1 to 16 of them");
    op.in("router_weights", router_weights, {bf16}, "E 7168").layout(Layout::contiguous).doc("one row per expert, 256 or 384 of them");
    op.dtype_attr("out_dtype", out_dtype, {bf16, f32}).doc("element type of output; gates route on f32");
    op.out("output", output, dtype_of_attr("out_dtype"), "T E").layout(Layout::contiguous).doc("logits, rounded once");
    op.symbol("T", {.minimum = 1, .maximum = 16});
    op.symbol("E", {.choices = {256, 384}});
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
