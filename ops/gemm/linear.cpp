#include "ops/gemm/linear.h"

#include "ops/sums/products.h"
#include "ops/sums/products_gpu.h"
#include "ops/tiles/dot.h"

namespace dodona::ops {
namespace {

DotProduct product_of(const Linear& op) {
  return {batch_of_one(op.input), batch_of_one(op.weight.transpose(0, 1)), batch_of_one(op.output)};
}

std::vector<Product> products_of(const Linear& op) {
  return batched_products(batch_of_one(op.input), batch_of_one(op.weight.transpose(0, 1)));
}

void check(const Linear& op) {
  if (op.out_dtype != op.input.dtype() && op.out_dtype != f32)
    throw Error(ErrorCode::bad_dtype, "", "out_dtype",
                "is " + std::string(name(op.out_dtype)) + ", expected f32" +
                    (op.input.dtype() == f32 ? "" : " or " + std::string(name(op.input.dtype()))) + ", as input has " +
                    std::string(name(op.input.dtype())));
  check_split_k(split_of(op), op.input.size(1));
}

void golden(const Linear& op, const Exec& exec, Reference* reference) {
  golden_products(products_of(op), half_in_parts, op.output, reference, "output", exec);
}

void fast(const Linear& op, const Exec& exec) {
  dot_multiply(product_of(op), exec);
}

std::optional<Refusal> unsupported(const Linear& op, Mode mode) {
  return of_a_gpu(mode) ? unknown_half_product(mode, "input", op.input.dtype(), "weight", op.weight.dtype()) : std::nullopt;
}

void on_gpu(const Linear& op, const Exec& exec) {
  gpu_products(products_of(op), in_chunks(half_in_parts, split_of(op)), op.output, exec);
}

double flops(const Linear& op) {
  return dot_flops(product_of(op));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_linear() {
  return define<ops::Linear>({
      .contract = std::string(ops::half_sum_contract) + std::string(ops::split_k_contract),
      .golden = ops::golden,
      .fast = ops::fast,
      .hopper = ops::on_gpu,
      .blackwell = ops::on_gpu,
      .ada = ops::on_gpu,
      .ampere = ops::on_gpu,
      .unsupported = ops::unsupported,
      .check = ops::check,
      .flops = ops::flops,
      .fib_names = {{"", "gemm", "gemm_n", {{"input", "A"}, {"weight", "B"}}, {{"output", "C"}}}},
      .cases = {"T=7 N=37 K=200", "T=1 N=64 K=1088 --dtype input=f32 --attr out_dtype=f32",
                "T=3 N=33 K=65 --dtype weight=f32 --attr out_dtype=f32",
                "T=9 N=16 K=96 --dtype input=f16 --dtype weight=f16 --attr out_dtype=f16", "T=5 N=48 K=456 --attr split_k=3",
                "T=3 N=40 K=424 --attr split_k=5 --attr chunks=interleaved --attr chunk_order=by_fours --attr block_k=32"},
      .bench_cases = {"T=1 N=2112 K=7168", "T=1 N=24576 K=1536", "T=1 N=256 K=7168", "T=16 N=2112 K=7168", "T=64 N=2112 K=7168",
                      "T=256 N=2112 K=7168"},
  });
}
}  // namespace dodona
