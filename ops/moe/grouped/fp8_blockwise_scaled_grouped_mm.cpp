#include "ops/moe/grouped/fp8_blockwise_scaled_grouped_mm.h"

#include "ops/sums/products_gpu.h"

namespace dodona::ops {
namespace {

using Call = Fp8BlockwiseScaledGroupedMm;

void hopper(const Call& op, const Exec& exec) {
  clear_rows_of_nobody(grouped_fp8_problems(op).experts(), op.output);
  gpu_products(grouped_fp8_products(op), hopper_fp8_promoted, op.output, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_fp8_blockwise_scaled_grouped_mm() {
  auto op = ops::grouped_fp8_op<ops::Fp8BlockwiseScaledGroupedMm>("sgl-kernel/tests/test_fp8_blockwise_moe.py", R"(
 Hopper mode: by that formula, K in one chain of blocks, for any number of rows.)");
  op.hopper = ops::hopper;
  return define<ops::Fp8BlockwiseScaledGroupedMm>(std::move(op));
}
}  // namespace dodona
