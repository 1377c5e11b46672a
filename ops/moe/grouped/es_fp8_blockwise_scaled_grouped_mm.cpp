#include "ops/moe/grouped/es_fp8_blockwise_scaled_grouped_mm.h"

#include "ops/sums/products_gpu.h"

namespace dodona::ops {
namespace {

using Call = EsFp8BlockwiseScaledGroupedMm;

/// Experts with at most so many rows are multiplied with their operands swapped.
constexpr std::int64_t swapped_rows = 64;

void hopper(const Call& op, const Exec& exec) {
  clear_rows_of_nobody(grouped_fp8_problems(op).experts(), op.output);
  const auto few = [](std::int64_t rows) { return rows <= swapped_rows; };
  gpu_products(grouped_fp8_products(op, few), hopper_fp8_promoted_back, op.output, exec);
  gpu_products(grouped_fp8_products(op, [&](std::int64_t rows) { return !few(rows); }), hopper_fp8_promoted, op.output, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_es_fp8_blockwise_scaled_grouped_mm() {
  auto op = ops::grouped_fp8_op<ops::EsFp8BlockwiseScaledGroupedMm>("sgl-kernel/tests/test_es_fp8_blockwise_moe.py", R"(
 Hopper mode: experts with more than 64 rows by that formula, K in one chain of blocks; those with fewer multiply with one scale after the
other, acc = fma(fl32(t * scale_b), scale_a, acc).)");
  op.hopper = ops::hopper;
  return define<ops::EsFp8BlockwiseScaledGroupedMm>(std::move(op));
}
}  // namespace dodona
