#include "ops/moe/grouped/fp8_blockwise_scaled_grouped_mm.h"

#include "ops/sums/products_gpu.h"

namespace dodona::ops {
namespace {

using Call = Fp8BlockwiseScaledGroupedMm;

void check(const Call& op) {
  check_grouped_fp8(op, "stride_c", op.stride_c);
}

void make_inputs(Call& op, std::uint64_t seed) {
  make_grouped_fp8_inputs(op, op.stride_c, seed);
}

void hopper(const Call& op, const Exec& exec) {
  clear_rows_of_nobody(grouped_fp8_problems(op).experts(), op.output);
  gpu_products(grouped_fp8_products(op), hopper_fp8_promoted, op.output, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_fp8_blockwise_scaled_grouped_mm() {
  using Call = ops::Fp8BlockwiseScaledGroupedMm;
  auto cases = ops::grouped_fp8_cases;
  cases.emplace_back("M=5 N=128 K=256 E=3 --with stride_c");
  return define<Call>({
      .contract = ops::grouped_fp8_contract + ops::block_scaled_sum_contract + R"(
 Hopper mode: by that formula, K in one chain of blocks, for any number of rows.)",
      .golden = ops::grouped_fp8_golden<Call>,
      .fast = ops::grouped_fp8_fast<Call>,
      .hopper = ops::hopper,
      .prepare = ops::grouped_fp8_prepared<Call>(),
      .make_inputs = ops::make_inputs,
      .check = ops::check,
      .flops = ops::grouped_fp8_flops<Call>,
      .bytes_read = ops::grouped_fp8_bytes<Call>,
      .mistakes = ops::grouped_fp8_mistakes<Call>(),
      .customary = {{"*", CustomaryKind::cosine, 0, 0.999, "sgl-kernel/tests/test_fp8_blockwise_moe.py"}},
      .cases = cases,
      .bench_cases = ops::grouped_fp8_bench_cases,
  });
}
}  // namespace dodona
