#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Products of fp8 rows, sorted by expert, with 4-bit weights of their expert: d = a_scales * A (B[e] * b_scales[e])^T, a bf16 scale for
/// every 128 of K of each row n.
/// Source: sgl-kernel `cutlass_w4a8_moe_mm` (CUTLASS, mixed input).
struct CutlassW4a8MoeMm {
  Tensor d, a, b, a_scales, b_scales, experts_offsets, problem_sizes, a_strides, b_strides, d_strides, s_strides;
  std::int64_t chunk_size = 128, topk = 8;

  static constexpr OpInfo info{"cutlass_w4a8_moe_mm", Category::moe, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature(
        "d, a, b, a_scales, b_scales, experts_offsets, problem_sizes, a_strides, b_strides, d_strides, s_strides, chunk_size, topk");
    op.in("a", a, {f8_e4m3}, "M K").layout(Layout::contiguous).doc("rows sorted by expert");
    op.in("b", b, {i8}, "E N K/2").codes(i4).layout(Layout::contiguous).doc("weights of each expert, two's complement, -8 to 7");
    op.in("a_scales", a_scales, {f32}, "1").role(Role::scale).doc("factor of all of a");
    op.in("b_scales", b_scales, {bf16}, "E G N*K/(128*G)")
        .layout(Layout::contiguous)
        .role(Role::scale)
        .doc(
            "a factor for 128 codes of a row n: [E, K/512, 4*N], four of a row next to each other, where K is a multiple of 512, else "
            "[E, K/128, N]");
    op.in("experts_offsets", experts_offsets, {i32}, "E")
        .layout(Layout::contiguous)
        .role(Role::indptr, "M")
        .doc("first row of each expert, rising from 0");
    op.in("problem_sizes", problem_sizes, {i32}, "E 3")
        .layout(Layout::contiguous)
        .on_request()
        .kin("N; the rows between experts_offsets, less a choice below 2 where there are some; K")
        .doc("N, rows and K of each expert; by default its rows end where the next expert's begin, the last one's at M");
    op.in("a_strides", a_strides, {i64}, "E 3").layout(Layout::contiguous).on_request().kin("K").doc("K");
    op.in("b_strides", b_strides, {i64}, "E 3").layout(Layout::contiguous).on_request().kin("K").doc("K");
    op.in("d_strides", d_strides, {i64}, "E 3").layout(Layout::contiguous).on_request().kin("N").doc("N");
    op.in("s_strides", s_strides, {i64}, "E 3").layout(Layout::contiguous).on_request().kin("N").doc("N");
    op.attr("chunk_size", chunk_size, between(128, 128)).doc("codes that share a scale");
    op.attr("topk", topk, between(1, 1 << 20)).ignored().doc("experts of a token: chooses the kernel's tiles");
    op.out("d", d, {bf16}, "M N").layout(Layout::contiguous).padded().doc("rounded once; rows of no expert are unspecified");
    op.symbol("K", {.multiple_of = 128});
    op.symbol("E", {.minimum = 1});
  }
};

}  // namespace dodona::ops
