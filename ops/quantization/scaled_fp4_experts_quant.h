#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// NVFP4 quantization of rows sorted by expert, each expert with its own encode scale and its own part of the scale matrix; a row as
/// `scaled_fp4_quant` does it.
/// Source: sgl-kernel `scaled_fp4_experts_quant`.
struct ScaledFp4ExpertsQuant {
  Tensor input_tensor, input_global_scale, expert_offsets, blockscale_offsets, expert_map, output, output_scales;
  std::int64_t topk = 1;

  static constexpr OpInfo info{"scaled_fp4_experts_quant", Category::quantization, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("input_tensor, input_global_scale, expert_offsets, blockscale_offsets, topk, expert_map");
    op.in("input_tensor", input_tensor, {bf16, f16}, "M K").layout(Layout::contiguous).doc("rows, sorted by expert unless there is a map");
    op.in("input_global_scale", input_global_scale, {f32}, "E")
        .role(Role::scale)
        .doc("encode scale of each expert, 448*6 / largest magnitude");
    op.in("expert_offsets", expert_offsets, {i32}, "E+1")
        .layout(Layout::contiguous)
        .role(Role::indptr, "T")
        .doc("expert e owns the rows from entry e to before entry e+1; from 0, rising, the last one at most T");
    op.in("blockscale_offsets", blockscale_offsets, {i32}, "E+1")
        .layout(Layout::contiguous)
        .on_request()
        .kin("each at the next multiple of 128 with room, or one tile farther where a choice below 2 is 1; the last is the end")
        .doc(
            "where each expert's scales begin, in rows of output_scales: multiples of 128 with room for its rows; by default each at the "
            "next such multiple");
    op.in("expert_map", expert_map, {i32}, "T")
        .layout(Layout::contiguous)
        .role(Role::positions, "M")
        .on_request()
        .doc("row t of the output is made from this row of the input; by default row t");
    op.attr("topk", topk, between(1, 65536)).doc("experts per token: neither T nor the rows of output_scales exceed 65536 times this");
    op.out("output", output, {u8}, "T K/2")
        .layout(Layout::contiguous)
        .judged(Judge::code)
        .padded()
        .codes(f4_e2m1)
        .doc("rows beyond the last offset are unspecified");
    op.out("output_scales", output_scales, {f8_e4m3}, "R align(K/16,4)")
        .layout(Layout::contiguous)
        .judged(Judge::code)
        .padded()
        .scales("output", 1, 16, ScaleOrder::swizzled_128x4)
        .by_expert()
        .doc("block scales; by default as many rows as the offsets end at");
    op.symbol("K", {.multiple_of = 16});
  }
};

}  // namespace dodona::ops
