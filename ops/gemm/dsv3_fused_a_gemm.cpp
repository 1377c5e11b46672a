#include "ops/gemm/dsv3_fused_a_gemm.h"

#include "ops/sums/products.h"
#include "ops/sums/products_gpu.h"
#include "ops/tiles/dot.h"

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

void on_gpu(const Dsv3FusedAGemm& op, const Exec& exec) {
  gpu_products(products_of(op), four_warps, op.output, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_dsv3_fused_a_gemm() {
  return define<ops::Dsv3FusedAGemm>({
      .contract = R"(
Upstream's order, and that of hopper and blackwell mode: K in four contiguous quarters, each summed by tensor-core steps of 16 products; the four
fp32 sums added left to right. Other orders are as good:
)" + std::string(ops::half_sum_contract),
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
