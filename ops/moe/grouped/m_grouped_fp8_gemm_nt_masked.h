#pragma once

#include "ops/schemes/deep_gemm.h"

namespace dodona::ops {

using enum DType;

/// d[g] = a[g] b[g]^T of fp8 rows for the first masked_m[g] rows of each group, with scales of 128 along K, of each row of a and of
/// `gran_n` rows of b. An H100's kernel stores tiles of 64 rows whole, so that callers give it an M of whole tiles. Source: DeepGEMM
/// `m_grouped_fp8_gemm_nt_masked`, with scales in fp32 or, for a B200, as exponents in words.
struct MGroupedFp8GemmNtMasked {
  Tensor a, sfa, b, sfb, d, masked_m;
  std::int64_t expected_m = 1;
  std::int64_t gran_n = 128;
  bool scale_ue8m0 = false;

  static constexpr OpInfo info{"m_grouped_fp8_gemm_nt_masked", Category::moe, Source::deep_gemm};
  void describe(auto& op) {
    op.signature("a, sfa, b, sfb, d, masked_m, expected_m");
    op.in("a", a, {f8_e4m3}, "G M K").layout(Layout::contiguous).doc("rows of each group, the first masked_m of which count");
    describe_scales_of_a(op, sfa, "G M");
    op.in("b", b, {f8_e4m3}, "G N K").layout(Layout::contiguous).doc("weight of each group, one row per output column");
    describe_scales_of_b(op, sfb, "G ceil(N/gran_n)");
    op.in("masked_m", masked_m, {i32}, "G").layout(Layout::contiguous).role(Role::positions, "M+1").doc("rows of each group that count");
    op.attr("expected_m", expected_m, between(0, 1 << 30)).ignored().doc("rows to expect: chooses the kernel's tiles");
    describe_deep_gemm_recipe(op, *this);
    op.out("d", d, {bf16}, "G M N").layout(Layout::contiguous).padded().doc("rounded once; rows that do not count are unspecified");
    op.symbol("K", {.multiple_of = 16});
    op.symbol("N", {.multiple_of = 8});
  }
};

}  // namespace dodona::ops
