#include "ops/gemm/linear.h"

#include "ops/schemes/half_product.h"
#include "ops/sums/cublas_f32.h"

namespace dodona::ops {
namespace {

HalfProduct half_product_of(const Linear& op) {
  return {.operands = {batch_of_one(op.input), batch_of_one(op.weight.transpose(0, 1)), batch_of_one(op.output)},
          .a_name = "input",
          .b_name = "weight",
          .out = op.output,
          .out_name = "output",
          .out_dtype = op.out_dtype,
          .split = split_of(op)};
}

/// cuBLAS's choice for factors of f32 is no recipe: it goes by the sizes.
bool in_f32(const Linear& op) {
  return op.input.dtype() == f32 || op.weight.dtype() == f32;
}

void hopper(const Linear& op, const Exec& exec) {
  if (in_f32(op)) return cublas_f32_product(op.input, op.weight, op.output, exec);
  half_product_on_gpu(half_product_of(op), exec);
}

std::optional<Refusal> unsupported(const Linear& op, Mode mode) {
  if (mode != Mode::hopper || !in_f32(op)) return unsupported_half_product(half_product_of(op), mode);
  if (op.split_k > 1)
    return Refusal{"split_k", "is " + std::to_string(op.split_k) + ", expected 1: factors of f32 have cuBLAS's own parts"};
  const std::int64_t rows = op.input.size(0), columns = op.weight.size(0), k = op.input.size(1);
  if (op.out_dtype == f32 && cublas_f32_is_known(rows, columns, k)) return {};
  return Refusal{"input", "times weight is a product of f32, [" + std::to_string(rows) + ", " + std::to_string(k) + "] * [" +
                              std::to_string(columns) + ", " + std::to_string(k) +
                              "]^T: cuBLAS's order of sums is known for up to 384 rows of K = 7168 and N = 64, given in f32"};
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_linear() {
  auto all = ops::half_product_functions<ops::Linear, ops::half_product_of>();
  all.contract += ops::cublas_f32_contract;
  all.contract_version = 2;
  all.hopper = ops::hopper;
  all.unsupported = ops::unsupported;
  all.fib_names = {{"", "gemm", "gemm_n", {{"input", "A"}, {"weight", "B"}}, {{"output", "C"}}}};
  all.cases = {"T=7 N=37 K=200",
               "T=1 N=64 K=1088 --dtype input=f32 --attr out_dtype=f32",
               "T=3 N=33 K=65 --dtype weight=f32 --attr out_dtype=f32",
               "T=9 N=16 K=96 --dtype input=f16 --dtype weight=f16 --attr out_dtype=f16",
               "T=5 N=48 K=456 --attr split_k=3",
               "T=3 N=40 K=424 --attr split_k=5 --attr chunks=interleaved --attr chunk_order=by_fours --attr block_k=32"};
  all.bench_cases = {"T=1 N=2112 K=7168", "T=1 N=24576 K=1536", "T=1 N=256 K=7168",   "T=4 N=2112 K=7168",
                     "T=8 N=2112 K=7168", "T=16 N=2112 K=7168", "T=64 N=2112 K=7168", "T=256 N=2112 K=7168"};
  return define(std::move(all));
}
}  // namespace dodona
