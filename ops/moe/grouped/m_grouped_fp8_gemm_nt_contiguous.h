#pragma once

#include "ops/schemes/deep_gemm.h"

namespace dodona::ops {

using enum DType;

/// d[i] = a[i] b[m_indices[i]]^T of fp8 rows, those of a group next to each other in whole blocks of 128, with scales of 128 along K, of
/// each row of a and of `gran_n` rows of b.
/// Source: DeepGEMM `m_grouped_fp8_gemm_nt_contiguous`, with scales in fp32 or, for a B200, as exponents in words.
struct MGroupedFp8GemmNtContiguous {
  Tensor a, sfa, b, sfb, d, m_indices;
  std::int64_t gran_n = 128;
  bool scale_ue8m0 = false;

  static constexpr OpInfo info{"m_grouped_fp8_gemm_nt_contiguous", Category::moe, Source::deep_gemm};
  void describe(auto& op) {
    op.signature("a, sfa, b, sfb, d, m_indices");
    op.in("a", a, {f8_e4m3}, "M K").layout(Layout::contiguous).doc("rows, those of a group in whole blocks of 128 rows");
    describe_scales_of_a(op, sfa, "M");
    op.in("b", b, {f8_e4m3}, "G N K").layout(Layout::contiguous).doc("weight of each group, one row per output column");
    describe_scales_of_b(op, sfb, "G ceil(N/gran_n)");
    op.in("m_indices", m_indices, {i32}, "M")
        .layout(Layout::contiguous)
        .kin("of block b of 128 rows a choice below G; -1 for as many rows at its end as a second choice below its number of rows says")
        .doc("group of each row, -1 for padding; one group in a block of 128 rows");
    describe_deep_gemm_recipe(op, *this);
    op.out("d", d, {bf16}, "M N").layout(Layout::contiguous).padded().doc("rounded once; rows of padding are unspecified");
    op.symbol("K", {.multiple_of = 16});
    op.symbol("N", {.multiple_of = 8});
    op.symbol("G", {.minimum = 1});
  }
};

}  // namespace dodona::ops
