#pragma once

#include "ops/schemes/scaled_mm.h"

namespace dodona::ops {

/// Product of fp8 matrices with a scale for each row of A and for each column of B: out = (A B) * scales_b * scales_a + bias.
/// Source: sgl-kernel `fp8_scaled_mm` (CUTLASS).
struct Fp8ScaledMm {
  Tensor mat_a, mat_b, scales_a, scales_b, bias, out;
  DType out_dtype = bf16;
  std::string accumulator = "hopper_fp8";

  static constexpr OpInfo info{"fp8_scaled_mm", Category::gemm, Source::sgl_kernel};
  void describe(auto& op) {
    describe_scaled_mm(op, *this, f8_e4m3);
    op.choice("accumulator", accumulator, {"hopper_fp8", "fp32"})
        .doc("what sums may lose: hopper_fp8: what lies 13 bits below the largest addend, at every 32 products; fp32: fp32 roundings")
        .dialect("trtllm", "fp32");
    op.symbol("K", {.multiple_of = 16});
    op.symbol("N", {.multiple_of = 8});
  }
};

}  // namespace dodona::ops
