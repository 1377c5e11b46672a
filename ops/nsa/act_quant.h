#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// y = e4m3(x / s) and s for each block_size elements of a row, s = max(1e-4, max |x|) / 448 or, with scale_fmt, the power of two at or
/// above that: queries and keys of the indexer. Source: SGLang `act_quant` (nsa's tilelang_kernel, from DeepSeek-V3.2's inference code;
/// triton_kernel has another).
struct ActQuant {
  Tensor x, y, s;
  std::int64_t block_size = 128;
  std::string scale_fmt = "none", kernel = "tilelang";

  static constexpr OpInfo info{"act_quant", Category::nsa, {Source::tilelang, Source::triton}};
  void describe(auto& op) {
    op.signature("x, block_size, scale_fmt, kernel");
    op.attr("block_size", block_size, between(16, 1 << 16)).doc("elements that share a scale, a power of two; 128 in tilelang's kernel");
    op.choice("scale_fmt", scale_fmt, {"none", "ue8m0"}).doc("ue8m0: scales are powers of two (of upstream any text says so)");
    op.choice("kernel", kernel, {"tilelang", "triton"}).doc("whose arithmetic hopper mode has");
    op.in("x", x, {bf16}, "T... G*block_size").layout(Layout::contiguous).doc("rows of G whole blocks");
    op.out("y", y, {f8_e4m3}, "T... G*block_size").layout(Layout::contiguous).judged(Judge::code).doc("codes");
    op.out("s", s, {f32}, "T... G").layout(Layout::contiguous).doc("what a code's value is multiplied with to give it back");
    op.rows_independent("T");
  }
  bool powers() const { return scale_fmt != "none"; }
};

}  // namespace dodona::ops
