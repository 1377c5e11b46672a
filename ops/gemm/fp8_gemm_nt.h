#pragma once

#include "core/define.h"

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
    op.in("sfa", sfa, {f32, i32}, "M ceil(K/(128*(1+3*scale_ue8m0)))")
        .layout(Layout::any)
        .role(Role::scale)
        .scales("a", 1, 128)
        .doc(
            "what 128 codes of a row of a are multiplied with; f32, or with scale_ue8m0 i32: exponents of four groups, the first in the "
            "low byte");
    op.in("b", b, {f8_e4m3}, "N K").doc("weight, one row per output column");
    op.in("sfb", sfb, same_as("sfa"), "ceil(N/gran_n) ceil(K/(128*(1+3*scale_ue8m0)))")
        .layout(Layout::any)
        .role(Role::scale)
        .scales("b", 128, 128)
        .doc("likewise, of gran_n rows of b");
    op.attr("gran_n", gran_n, between(1, 128)).doc("rows of b that share a scale, 128 or 1: the second number of upstream's recipe");
    op.attr("scale_ue8m0", scale_ue8m0).doc("scales are exponents, four in a word, and gran_n is 1");
    op.dtype_attr("out_dtype", out_dtype, {bf16, f32}).doc("element type of d");
    op.in("c", c, {f32}, "M N").on_request().doc("added to the products; with d of f32");
    op.out("d", d, dtype_of_attr("out_dtype"), "M N").doc("rounded once, with c twice");
    op.symbol("K", {.multiple_of = 16});
    op.symbol("N", {.multiple_of = 8});
    op.rows_independent("M");
  }
};

}  // namespace dodona::ops
