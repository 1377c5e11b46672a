#pragma once

#include "core/define.h"
#include "ops/sums/split_k.h"

namespace dodona::ops {

using enum DType;

/// Batched product of fp8 matrices with one scale per operand: out = (A_scale * B_scale) * A B.
/// Source: FlashInfer `bmm_fp8` (cuBLASLt).
struct BmmFp8 {
  Tensor A, B, A_scale, B_scale, out;
  DType dtype = bf16;
  std::string accumulator = "hopper_fp8";
  std::int64_t split_k = 1;
  std::string chunk_order = "ascending", block_k = "128";

  static constexpr OpInfo info{"bmm_fp8", Category::gemm, {Source::flashinfer, Source::sgl_kernel}};
  void describe(auto& op) {
    op.signature("A, B, A_scale, B_scale, dtype, out");
    op.in("A", A, {f8_e4m3, f8_e5m2}, "L M K").layout(Layout::contiguous).doc("left matrices");
    op.in("B", B, {f8_e4m3, f8_e5m2}, "L K N").layout(Layout::column_major).doc("right matrices, [L, N, K] in memory; not e5m2 if A is");
    op.in("A_scale", A_scale, {f32}, " | 1").role(Role::scale).scales("A", 0, 0).doc("what A's codes are multiplied with");
    op.in("B_scale", B_scale, {f32}, " | 1").role(Role::scale).scales("B", 0, 0).doc("what B's codes are multiplied with");
    op.dtype_attr("dtype", dtype, {bf16, f16}).doc("element type of out");
    op.choice("accumulator", accumulator, {"hopper_fp8", "promoted_128", "mma_sync", "ada_fp8", "fp32"})
        .doc(
            "what sums may lose: hopper_fp8: what lies 13 bits below the largest addend, at every 32 products (cuBLASLt's and CUTLASS's "
            "fast "
            "accumulation, Triton in blocks of 64 rows and more); promoted_128: the same, added to fp32 sums after every 128 products "
            "(CUTLASS without fast accumulation, Triton's max_num_imprecise_acc=128); mma_sync: 25 bits, at every 16 products (Triton in "
            "blocks of fewer rows); ada_fp8: 13 bits at every 16 products (an L40S); fp32: fp32 roundings")
        .dialect("trtllm", "fp32");
    describe_split_k(op, *this, {"128", "32", "64", "256"});
    op.out("out", out, dtype_of_attr("dtype"), "L M N").layout(Layout::contiguous).doc("rounded once");
    op.symbol("K", {.multiple_of = 16});
    op.symbol("N", {.multiple_of = 16});
    op.rows_independent("L");
  }
};

}  // namespace dodona::ops
