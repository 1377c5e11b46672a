#pragma once

#include "ops/schemes/deep_gemm.h"

namespace dodona::ops {

using enum DType;

/// d = a b^T of fp8 matrices with scales of 128 along K, of each row of a and of `gran_n` rows of b; plus c.
/// Source: DeepGEMM `fp8_gemm_nt`.
struct Fp8GemmNt {
  Tensor a, sfa, b, sfb, c, d;
  DType out_dtype = bf16;
  std::int64_t gran_n = 128;
  bool scale_ue8m0 = false;

  static constexpr OpInfo info{"fp8_gemm_nt", Category::gemm, Source::deep_gemm};
  void describe(auto& op) {
    op.signature("a, sfa, b, sfb, d, c");
    op.in("a", a, {f8_e4m3}, "M K").doc("activations, one row per token");
    describe_scales_of_a(op, sfa, "M");
    op.in("b", b, {f8_e4m3}, "N K").doc("weight, one row per output column");
    describe_scales_of_b(op, sfb, "ceil(N/gran_n)");
    describe_deep_gemm_recipe(op, *this);
    op.dtype_attr("out_dtype", out_dtype, {bf16, f32}).doc("element type of d");
    op.in("c", c, {f32}, "M N").on_request().doc("added to the products; with d of f32");
    op.out("d", d, dtype_of_attr("out_dtype"), "M N").doc("rounded once, with c twice");
    op.symbol("K", {.multiple_of = 16});
    op.symbol("N", {.multiple_of = 8});
    op.rows_independent("M");
  }
};

}  // namespace dodona::ops
