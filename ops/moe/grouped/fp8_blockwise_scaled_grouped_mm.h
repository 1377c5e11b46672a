#pragma once

#include "ops/schemes/fp8_grouped.h"

namespace dodona::ops {

/// Products of fp8 rows, sorted by expert, with the fp8 weight of their expert, both with scales of blocks: 1 x 128 of A, 128 x 128 of B.
/// Source: sgl-kernel `fp8_blockwise_scaled_grouped_mm` (CUTLASS). Its arrays of pointers and layouts are scratch.
struct Fp8BlockwiseScaledGroupedMm {
  Tensor output, a, b, scales_a, scales_b, stride_a, stride_b, stride_c, problem_sizes, expert_offsets;
  DType out_dtype = bf16;

  static constexpr OpInfo info{"fp8_blockwise_scaled_grouped_mm", Category::moe, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature(
        "output, a_ptrs=, b_ptrs=, out_ptrs=, a_scales_ptrs=, b_scales_ptrs=, a, b, scales_a, scales_b, stride_a, stride_b, stride_c, "
        "layout_sfa=, layout_sfb=, problem_sizes, expert_offsets, workspace=");
    describe_grouped_fp8(op, *this, out_stride, stride_c);
  }

  static constexpr const char* out_stride = "stride_c";
  const Tensor& out_strides() const { return stride_c; }
};

}  // namespace dodona::ops
