#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Product of NVFP4 matrices: out = alpha * A B^T, both with an e4m3 scale for every 16 elements along K.
/// Source: sgl-kernel `cutlass_scaled_fp4_mm` (CUTLASS block-scaled tensor-op GEMM).
struct CutlassScaledFp4Mm {
  Tensor a, b, block_scale_a, block_scale_b, alpha, out;
  DType out_dtype = bf16;

  static constexpr OpInfo info{"cutlass_scaled_fp4_mm", Category::gemm, Source::sgl_kernel};
  void describe(auto& op) {
    op.in("a", a, {u8}, "M K/2").layout(Layout::contiguous).doc("e2m1 codes, two a byte, even column in the low nibble");
    op.in("b", b, {u8}, "N K/2").layout(Layout::contiguous).doc("likewise, one row for each output column");
    op.in("block_scale_a", block_scale_a, {f8_e4m3}, "align(M,128) align(K/16,4)")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .doc("a's block scales in tiles of 128 x 4: row r of a tile at (r mod 32)*16 + (r/32)*4; padding may hold anything");
    op.in("block_scale_b", block_scale_b, {f8_e4m3}, "align(N,128) align(K/16,4)")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .doc("b's block scales, likewise");
    op.in("alpha", alpha, {f32}, "1 | ").role(Role::scale).doc("factor of the whole product: the product of both decode scales");
    op.dtype_attr("out_dtype", out_dtype, {bf16, f16, f32}).doc("element type of out");
    op.out("out", out, dtype_of_attr("out_dtype"), "M N").layout(Layout::contiguous).doc("rounded once");
    op.symbol("K", {.multiple_of = 32});
    op.symbol("N", {.multiple_of = 32});
  }
};

}  // namespace dodona::ops
