#pragma once

#include "ops/schemes/scaled_mm.h"

namespace dodona::ops {

/// Product of int8 matrices with a scale for each row of A and for each column of B: out = (A B) * scales_b * scales_a + bias.
/// Source: sgl-kernel `int8_scaled_mm` (CUTLASS).
struct Int8ScaledMm {
  Tensor mat_a, mat_b, scales_a, scales_b, bias, out;
  DType out_dtype = bf16;

  static constexpr OpInfo info{"int8_scaled_mm", Category::gemm, Source::sgl_kernel};
  void describe(auto& op) {
    describe_scaled_mm(op, *this, i8);
    // 128 * 128 * K fits in 31 bits.
    op.symbol("K", {.multiple_of = 16, .maximum = 131056});
    op.symbol("N", {.multiple_of = 8});
  }
};

}  // namespace dodona::ops
