#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Products of NVFP4 rows, sorted by expert, with NVFP4 weights of their expert: out = alphas[e] * A B[e]^T.
/// Source: sgl-kernel `cutlass_fp4_group_mm` (CUTLASS grouped block-scaled GEMM).
struct CutlassFp4GroupMm {
  Tensor a_fp4, b_fp4, a_blockscale, b_blockscale, alphas, ab_strides, c_strides, problem_sizes, expert_offsets, blockscale_offsets, out;
  DType out_dtype = bf16;

  static constexpr OpInfo info{"cutlass_fp4_group_mm", Category::moe, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("a_fp4, b_fp4, a_blockscale, b_blockscale, alphas, out_dtype");
    op.in("a_fp4", a_fp4, {u8}, "M K/2").layout(Layout::contiguous).doc("e2m1 codes, two a byte, even column in the low nibble");
    op.in("b_fp4", b_fp4, {u8}, "E N K/2").layout(Layout::contiguous).doc("weights of each expert, likewise");
    op.in("a_blockscale", a_blockscale, {f8_e4m3}, "R align(K/16,4)")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .doc("a's block scales, each expert's in tiles of 128 x 4: row r of a tile at (r mod 32)*16 + (r/32)*4");
    op.in("b_blockscale", b_blockscale, {f8_e4m3}, "E align(N,128) align(K/16,4)")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .doc("b's block scales in tiles of 128 x 4");
    op.in("alphas", alphas, {f32}, "E").layout(Layout::contiguous).role(Role::scale).doc("factor of each expert's product");
    op.in("ab_strides", ab_strides, {i64}, "S").layout(Layout::contiguous).optional().doc("[E]: K; may be left out");
    op.in("c_strides", c_strides, {i64}, "S").layout(Layout::contiguous).optional().doc("[E]: N; may be left out");
    op.in("problem_sizes", problem_sizes, {i32}, "S 3")
        .layout(Layout::contiguous)
        .optional()
        .doc("[E, 3]: rows, N and K of each expert; by default its rows end where the next expert's begin, the last one's at M");
    op.in("expert_offsets", expert_offsets, {i32}, "E")
        .layout(Layout::contiguous)
        .role(Role::indptr, "M")
        .doc("first row of each expert, rising from 0");
    op.in("blockscale_offsets", blockscale_offsets, {i32}, "S")
        .layout(Layout::contiguous)
        .optional()
        .doc(
            "[E]: row of a_blockscale where each expert's scales begin: multiples of 128 with room for its rows; by default each at the "
            "next such multiple");
    op.dtype_attr("out_dtype", out_dtype, {bf16, f16}).doc("element type of out");
    op.out("out", out, dtype_of_attr("out_dtype"), "M N")
        .layout(Layout::contiguous)
        .padded()
        .doc("rounded once; rows of no expert are unspecified");
    op.symbol("K", {.multiple_of = 32});
    op.symbol("N", {.multiple_of = 32});
  }
};

}  // namespace dodona::ops
