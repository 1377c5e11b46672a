#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Weights of four bits in AWQ's order to 16-bit floats: out[k,n] = (code[k,n] - zero[g,n]) * scales[g,n], g = k / (K / G).
/// Source: sgl-kernel `awq_dequantize`.
struct AwqDequantize {
  Tensor qweight, scales, qzeros, out;

  static constexpr OpInfo info{"awq_dequantize", Category::quantization, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("qweight, scales, qzeros");
    op.in("qweight", qweight, {i32}, "K N/8")
        .layout(Layout::contiguous)
        .doc("codes without sign, eight to a word: column j of them is nibble 0, 4, 1, 5, 2, 6, 3, 7 for j = 0 to 7, from the low end");
    op.in("scales", scales, {f16, bf16}, "G N").layout(Layout::contiguous).role(Role::scale).doc("one for K/G rows of a column");
    op.in("qzeros", qzeros, {i32}, "G N/8").layout(Layout::contiguous).doc("zero points, likewise, in words like the codes");
    op.out("out", out, same_as("scales"), "K N").layout(Layout::contiguous).doc("rounded once");
    op.symbol("N", {.multiple_of = 8});
  }
};

}  // namespace dodona::ops
