#pragma once

#include "core/define.h"

namespace dodona::ops {

using enum DType;

/// Product of fp8 matrices with scales of blocks: 1 x 128 of A, 128 x 128 of B.
/// Source: sgl-kernel `fp8_blockwise_scaled_mm` (CUTLASS).
struct Fp8BlockwiseScaledMm {
  Tensor mat_a, mat_b, scales_a, scales_b, out;
  DType out_dtype = bf16;
  std::string kernel = "cutlass";

  static constexpr OpInfo info{"fp8_blockwise_scaled_mm", Category::gemm, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("mat_a, mat_b, scales_a, scales_b, out_dtype");
    op.in("mat_a", mat_a, {f8_e4m3}, "M K").layout(Layout::contiguous).doc("activations, one row per token");
    op.in("mat_b", mat_b, {f8_e4m3}, "K N").layout(Layout::column_major).doc("the transposed weight, [N, K] in memory");
    op.in("scales_a", scales_a, {f32}, "M K/128")
        .layout(Layout::column_major)
        .role(Role::scale)
        .scales("mat_a", 1, 128)
        .doc("what 128 codes of a row are multiplied with; M-major, [K/128, M] in memory");
    op.in("scales_b", scales_b, {f32}, "K/128 N/128")
        .layout(Layout::column_major)
        .role(Role::scale)
        .scales("mat_b", 128, 128)
        .doc("what 128 x 128 codes are multiplied with; [N/128, K/128] in memory");
    op.dtype_attr("out_dtype", out_dtype, {bf16, f16}).doc("element type of out");
    op.choice("kernel", kernel, {"cutlass", "deep_gemm", "triton", "triton_mma_sync", "triton_k64", "triton_mma_sync_k64"})
        .doc(
            "whose sums, for hopper mode: cutlass: sgl-kernel's, acc = fma(t, fl32(scale_a*scale_b), acc), in parts of K where K > 3 N; "
            "deep_gemm: "
            "the same in one chain for every K; triton: sglang's "
            "w8a8_block_fp8_matmul in blocks of 64 rows and more, acc = fma(fl32(t*scale_a), scale_b, acc); triton_mma_sync: the same in "
            "blocks of fewer rows, where t comes from the units for 16 bits; triton_k64, triton_mma_sync_k64: likewise with BLOCK_SIZE_K = "
            "64, t being the sum of 64 products");
    op.out("out", out, dtype_of_attr("out_dtype"), "M N").layout(Layout::contiguous).doc("rounded once");
    op.symbol("K", {.multiple_of = 128});
    op.symbol("N", {.multiple_of = 128});
    op.rows_independent("M");
  }
};

}  // namespace dodona::ops
