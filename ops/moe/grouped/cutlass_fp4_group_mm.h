#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Products of NVFP4 rows, sorted by expert, with NVFP4 weights of their expert: out = alphas[e] * A B[e]^T.
/// Source: sgl-kernel `cutlass_fp4_group_mm` (CUTLASS grouped block-scaled GEMM).
struct CutlassFp4GroupMm {
  Tensor a_fp4, b_fp4, a_blockscale, b_blockscale, alphas, ab_strides, c_strides, problem_sizes, expert_offsets, blockscale_offsets, out;
  DType out_dtype = bf16;
  std::string accumulator = "blocks";

  static constexpr OpInfo info{"cutlass_fp4_group_mm", Category::moe, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("a_fp4, b_fp4, a_blockscale, b_blockscale, alphas, out_dtype");
    op.in("a_fp4", a_fp4, {u8}, "M K/2").codes(f4_e2m1).layout(Layout::contiguous).doc("rows sorted by expert");
    op.in("b_fp4", b_fp4, {u8}, "E N K/2").codes(f4_e2m1).layout(Layout::contiguous).doc("weights of each expert");
    op.in("a_blockscale", a_blockscale, {f8_e4m3}, "R align(K/16,4)")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .scales("a_fp4", 1, 16, ScaleOrder::swizzled_128x4)
        .by_expert()
        .padded()
        .doc("block scales; the padding may hold anything");
    op.in("b_blockscale", b_blockscale, {f8_e4m3}, "E align(N,128) align(K/16,4)")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .scales("b_fp4", 1, 16, ScaleOrder::swizzled_128x4)
        .padded()
        .doc("block scales; the padding may hold anything");
    op.in("alphas", alphas, {f32}, "E").layout(Layout::contiguous).role(Role::scale).doc("factor of each expert's product");
    op.in("ab_strides", ab_strides, {i64}, "E").layout(Layout::contiguous).on_request().kin("K for every expert").doc("K");
    op.in("c_strides", c_strides, {i64}, "E").layout(Layout::contiguous).on_request().kin("N for every expert").doc("N");
    op.in("problem_sizes", problem_sizes, {i32}, "E 3")
        .layout(Layout::contiguous)
        .on_request()
        .kin("the rows between expert_offsets, less a choice below 2 where there are some; N; K")
        .doc("rows, N and K of each expert; by default its rows end where the next expert's begin, the last one's at M");
    op.in("expert_offsets", expert_offsets, {i32}, "E")
        .layout(Layout::contiguous)
        .role(Role::indptr, "M")
        .doc("first row of each expert, rising from 0");
    op.in("blockscale_offsets", blockscale_offsets, {i32}, "E")
        .layout(Layout::contiguous)
        .on_request()
        .kin("each at the next multiple of 128 with room, or one tile farther where a choice below 2 is 1 and R leaves one to spare")
        .doc(
            "row of a_blockscale where each expert's scales begin: multiples of 128 with room for its rows; by default each at the next "
            "such multiple");
    op.dtype_attr("out_dtype", out_dtype, {bf16, f16}).doc("element type of out");
    op.choice("accumulator", accumulator, {"blocks", "tcgen05"})
        .ignored()
        .doc(
            "what golden mode's budget allows sums to lose: blocks: fp32 roundings of blocks in any order, and what units of other steps "
            "cut; tcgen05: what the steps of a B200's unit cut, K in order");
    op.out("out", out, dtype_of_attr("out_dtype"), "M N")
        .layout(Layout::contiguous)
        .padded()
        .doc("rounded once; rows of no expert are unspecified");
    op.symbol("K", {.multiple_of = 32});
    op.symbol("N", {.multiple_of = 32});
  }
};

}  // namespace dodona::ops
