#pragma once

#include "ops/rows/quantize/grouped_fp4.h"

namespace dodona::ops {

/// NVFP4 quantization of silu(gate) * up, rounded once to the type, of groups of rows with room for more.
/// Source: sgl-kernel `silu_and_mul_scaled_fp4_grouped_quant`.
struct SiluAndMulScaledFp4GroupedQuant {
  Tensor input_tensor, input_global_scale, mask, output, output_scales;

  static constexpr OpInfo info{"silu_and_mul_scaled_fp4_grouped_quant", Category::quantization, Source::sgl_kernel};
  void describe(auto& op) {
    op.in("input_tensor", input_tensor, {bf16, f16}, "L M 2*K").layout(Layout::contiguous).doc("gate and up, halves of each row");
    describe_grouped_fp4(op, *this);
  }
};

}  // namespace dodona::ops
