#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Product of NVFP4 matrices: out = alpha * A B^T, both with an e4m3 scale for every 16 elements along K.
/// Source: sgl-kernel `cutlass_scaled_fp4_mm` (CUTLASS block-scaled tensor-op GEMM).
struct CutlassScaledFp4Mm {
  Tensor a, b, block_scale_a, block_scale_b, alpha, out;
  DType out_dtype = bf16;
  std::string accumulator = "blocks";

  static constexpr OpInfo info{"cutlass_scaled_fp4_mm", Category::gemm, Source::sgl_kernel};
  void describe(auto& op) {
    op.in("a", a, {u8}, "M K/2").codes(f4_e2m1).layout(Layout::contiguous).doc("left matrix");
    op.in("b", b, {u8}, "N K/2").codes(f4_e2m1).layout(Layout::contiguous).doc("right matrix, one row for each output column");
    op.in("block_scale_a", block_scale_a, {f8_e4m3}, "align(M,128) align(K/16,4)")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .scales("a", 1, 16, ScaleOrder::swizzled_128x4)
        .padded()
        .doc("block scales; the padding may hold anything");
    op.in("block_scale_b", block_scale_b, {f8_e4m3}, "align(N,128) align(K/16,4)")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .scales("b", 1, 16, ScaleOrder::swizzled_128x4)
        .padded()
        .doc("likewise");
    op.in("alpha", alpha, {f32}, "1 | ")
        .role(Role::scale)
        .scales("out", 0, 0)
        .doc("factor of the whole product: the product of both decode scales");
    op.dtype_attr("out_dtype", out_dtype, {bf16, f16, f32}).doc("element type of out");
    op.choice("accumulator", accumulator, {"blocks", "tcgen05"})
        .ignored()
        .doc(
            "what golden mode's budget allows sums to lose: blocks: fp32 roundings of blocks in any order, and what units of other steps "
            "cut; tcgen05: what the steps of a B200's unit cut, K in order");
    op.out("out", out, dtype_of_attr("out_dtype"), "M N").layout(Layout::contiguous).doc("rounded once");
    op.symbol("K", {.multiple_of = 32});
    op.symbol("N", {.multiple_of = 32});
  }
};

}  // namespace dodona::ops
