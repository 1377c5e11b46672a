#include "ops/quantization/silu_and_mul_scaled_fp4_grouped_quant.h"

namespace dodona {
std::unique_ptr<Op> op_silu_and_mul_scaled_fp4_grouped_quant() {
  auto op = ops::grouped_fp4_op<ops::SiluAndMulScaledFp4GroupedQuant, true>();
  op.contract = R"(
Row r of group l is there where r < mask[l]. x = T(fl32(silu(gate) * up)), gate the first half of the row, T the input type: one rounding.
x is quantized as scaled_fp4_quant does it with S = input_global_scale[l], its scales in tiles of 128 x 4 of the group. Budgets: of x what
silu_and_mul leaves open; scales lie between those of the least and of the largest magnitudes that the block may have; codes as in
scaled_fp4_quant from the scale that was stored, and the share of x that is open. Rows beyond the mask, and scales of no row, are unspecified.)";
  return define<ops::SiluAndMulScaledFp4GroupedQuant>(std::move(op));
}
}  // namespace dodona
