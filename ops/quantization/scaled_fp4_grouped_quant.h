#pragma once

#include "ops/rows/quantize/grouped_fp4.h"

namespace dodona::ops {

/// NVFP4 quantization of groups of rows with room for more, each with its own encode scale; a row as scaled_fp4_quant does it.
/// Source: sgl-kernel `scaled_fp4_grouped_quant`.
struct ScaledFp4GroupedQuant {
  Tensor input_tensor, input_global_scale, mask, output, output_scales;

  static constexpr OpInfo info{"scaled_fp4_grouped_quant", Category::quantization, Source::sgl_kernel};
  void describe(auto& op) {
    op.in("input_tensor", input_tensor, {bf16, f16}, "L M K").layout(Layout::contiguous).doc("M rows of each group");
    describe_grouped_fp4(op, *this);
  }
};

}  // namespace dodona::ops
