#pragma once

#include "core/define.h"
#include "ops/sums/split_k.h"

namespace dodona::ops {

using enum DType;

/// Batched product of matrices: out = mat1 mat2 for each of L. With mat1 the transposed view [H, B, D] of queries [B, H, 192] and mat2 the
/// [H, D, C] view of weights stored [H, C, D], it absorbs kv_b_proj's halves into MLA attention.
/// Source: `torch.bmm` (cuBLAS).
struct Bmm {
  Tensor mat1, mat2, out;
  DType out_dtype = bf16;
  std::int64_t split_k = 1;
  std::string chunks = "contiguous", chunk_order = "ascending", block_k = "64";

  static constexpr OpInfo info{"bmm", Category::gemm, Source::torch};
  void describe(auto& op) {
    op.in("mat1", mat1, {bf16, f16, f32}, "L M K").doc("left matrices");
    op.in("mat2", mat2, {bf16, f16, f32}, "L K N").layout(Layout::any).doc("right matrices, dense along K or along N; any of the types");
    op.dtype_attr("out_dtype", out_dtype, {bf16, f16, f32}).doc("element type of out: that of mat1, or f32");
    describe_split_k(op, *this, {"64", "32", "128", "256"});
    describe_chunks(op, chunks);
    op.out("out", out, dtype_of_attr("out_dtype"), "L M N").doc("rounded once");
    op.rows_independent("L");
    op.rows_independent("M");
  }
};

}  // namespace dodona::ops
