#pragma once

#include "core/define.h"

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
    op.in("sfa", sfa, {f32, i32}, "M ceil(K/(128*(1+3*scale_ue8m0)))")
        .layout(Layout::any)
        .role(Role::scale)
        .scales("a", 1, 128)
        .doc(
            "what 128 codes of a row of a are multiplied with; f32, or with scale_ue8m0 i32: exponents of four groups, the first in the "
            "low byte");
    op.in("b", b, {f8_e4m3}, "G N K").layout(Layout::contiguous).doc("weight of each group, one row per output column");
    op.in("sfb", sfb, same_as("sfa"), "G ceil(N/gran_n) ceil(K/(128*(1+3*scale_ue8m0)))")
        .layout(Layout::any)
        .role(Role::scale)
        .scales("b", 128, 128)
        .doc("likewise, of gran_n rows of b");
    op.in("m_indices", m_indices, {i32}, "M")
        .layout(Layout::contiguous)
        .kin("of block b of 128 rows a choice below G; -1 for as many rows at its end as a second choice below its number of rows says")
        .doc("group of each row, -1 for padding; one group in a block of 128 rows");
    op.attr("gran_n", gran_n, between(1, 128)).doc("rows of b that share a scale, 128 or 1: the second number of upstream's recipe");
    op.attr("scale_ue8m0", scale_ue8m0).doc("scales are exponents, four in a word, and gran_n is 1");
    op.out("d", d, {bf16}, "M N").layout(Layout::contiguous).padded().doc("rounded once; rows of padding are unspecified");
    op.symbol("K", {.multiple_of = 16});
    op.symbol("N", {.multiple_of = 8});
    op.symbol("G", {.minimum = 1});
  }
};

}  // namespace dodona::ops
