#pragma once

#include "ops/schemes/fp8_grouped.h"

namespace dodona::ops {

/// As fp8_blockwise_scaled_grouped_mm; the kernel has classes of experts by their number of rows.
/// Source: sgl-kernel `es_fp8_blockwise_scaled_grouped_mm` (CUTLASS, expert specialization).
struct EsFp8BlockwiseScaledGroupedMm {
  Tensor output, a, b, scales_a, scales_b, stride_a, stride_b, stride_d, problem_sizes, expert_offsets;
  DType out_dtype = bf16;

  static constexpr OpInfo info{"es_fp8_blockwise_scaled_grouped_mm", Category::moe, Source::sgl_kernel};
  void describe(auto& op) {
    op.signature("output, a, b, scales_a, scales_b, stride_a, stride_b, stride_d, problem_sizes, expert_offsets, workspace=");
    describe_grouped_fp8(op, *this, out_stride, stride_d);
  }

  static constexpr const char* out_stride = "stride_d";
  const Tensor& out_strides() const { return stride_d; }
};

}  // namespace dodona::ops
