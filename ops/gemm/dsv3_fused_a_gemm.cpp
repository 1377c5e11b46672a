#include "ops/gemm/dsv3_fused_a_gemm.h"

#include <algorithm>

#include "ops/base/rows.h"
#include "ops/sums/products.h"
#include "ops/sums/products_gpu.h"
#include "ops/tiles/dot/dot.h"

namespace dodona::ops {
namespace {

DotProduct product_of(const Dsv3FusedAGemm& op) {
  return {batch_of_one(op.mat_a), batch_of_one(op.mat_b), batch_of_one(op.output)};
}

std::vector<Product> products_of(const Dsv3FusedAGemm& op) {
  return batched_products(batch_of_one(op.mat_a), batch_of_one(op.mat_b));
}

void golden(const Dsv3FusedAGemm& op, const Exec& exec, Reference* reference) {
  golden_products(products_of(op), half_in_parts, op.output, reference, "output", exec);
}

void fast(const Dsv3FusedAGemm& op, const Exec& exec) {
  dot_multiply(product_of(op), exec);
}

double flops(const Dsv3FusedAGemm& op) {
  return dot_flops(product_of(op));
}

/// Four warps, each with its part of K.
constexpr Accumulator four_warps{.order = Order::contiguous, .unit = &quant::tensor_core::half_mma, .parts = 4};

/// The sum of the four is added to zero: where it was flushed no sign is left. (What is not flushed is no zero in bf16 either.)
void on_gpu(const Dsv3FusedAGemm& op, const Exec& exec) {
  gpu_products(products_of(op), four_warps, op.output, exec);
  for (std::int64_t t = 0; t < row_count(op.output); ++t) {
    auto* const row = reinterpret_cast<std::uint16_t*>(row_begin_mutable(op.output, t, 2));
    std::replace(row, row + op.output.size(1), std::uint16_t{0x8000}, std::uint16_t{0});
  }
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_dsv3_fused_a_gemm() {
  return define<ops::Dsv3FusedAGemm>({
      .contract = R"(
Upstream's order, and that of hopper and blackwell mode: K in four contiguous quarters, each summed by tensor-core steps of 16 products; the four
fp32 sums added left to right, and to zero, so that a flushed sum is +0. Other orders are as good:
)" + std::string(ops::half_sum_contract),
      .contract_version = 2,
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::on_gpu,
      .blackwell = ops::on_gpu,  // older GPUs are refused by upstream
      .flops = ops::flops,
      .customary = {{"*", CustomaryKind::close, 1e-2, 1e-3, "sgl-kernel/tests/test_dsv3_fused_a_gemm.py (bf16), torch.allclose"}},
      .cases = {"T=1", "T=2"},
      .bench_cases = {"T=1", "T=16"},
  });
}
}  // namespace dodona
