#pragma once

#include "core/define.h"
#include "ops/sums/split_k.h"

namespace dodona::ops {

using enum DType;

/// Product with a weight that a checkpoint leaves unquantized: output = input weight^T, without bias.
/// Source: `torch.nn.functional.linear` (cuBLAS).
struct Linear {
  Tensor input, weight, output;
  DType out_dtype = bf16;
  std::int64_t split_k = 1;
  std::string chunks = "contiguous", chunk_order = "ascending", block_k = "64";

  static constexpr OpInfo info{"linear", Category::gemm, Source::torch};
  void describe(auto& op) {
    op.in("input", input, {bf16, f16, f32}, "T K").doc("activations, one row per token");
    op.in("weight", weight, {bf16, f16, f32}, "N K").doc("one row per output feature; its type need not be the input's");
    op.dtype_attr("out_dtype", out_dtype, {bf16, f16, f32}).doc("element type of output: that of input, or f32");
    describe_split_k(op, *this, {"64", "32", "128", "256"});
    describe_chunks(op, chunks);
    op.out("output", output, dtype_of_attr("out_dtype"), "T N").doc("rounded once");
    op.rows_independent("T");
  }
};

}  // namespace dodona::ops
