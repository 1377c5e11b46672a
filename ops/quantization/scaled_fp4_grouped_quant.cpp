#include "ops/quantization/scaled_fp4_grouped_quant.h"

namespace dodona {
std::unique_ptr<Op> op_scaled_fp4_grouped_quant() {
  auto op = ops::grouped_fp4_op<ops::ScaledFp4GroupedQuant, false>();
  op.contract = R"(
Row r of group l is there where r < mask[l], and is quantized as scaled_fp4_quant does it with S = input_global_scale[l], its scales in tiles
of 128 x 4 of the group. Budgets as in scaled_fp4_quant. Rows beyond the mask, and scales of no row, are unspecified.)";
  return define<ops::ScaledFp4GroupedQuant>(std::move(op));
}
}  // namespace dodona
