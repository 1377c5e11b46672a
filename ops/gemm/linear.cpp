#include "ops/gemm/linear.h"

#include "ops/schemes/half_product.h"

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

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_linear() {
  auto all = ops::half_product_functions<ops::Linear, ops::half_product_of>();
  all.fib_names = {{"", "gemm", "gemm_n", {{"input", "A"}, {"weight", "B"}}, {{"output", "C"}}}};
  all.cases = {"T=7 N=37 K=200",
               "T=1 N=64 K=1088 --dtype input=f32 --attr out_dtype=f32",
               "T=3 N=33 K=65 --dtype weight=f32 --attr out_dtype=f32",
               "T=9 N=16 K=96 --dtype input=f16 --dtype weight=f16 --attr out_dtype=f16",
               "T=5 N=48 K=456 --attr split_k=3",
               "T=3 N=40 K=424 --attr split_k=5 --attr chunks=interleaved --attr chunk_order=by_fours --attr block_k=32"};
  all.bench_cases = {"T=1 N=2112 K=7168",  "T=1 N=24576 K=1536", "T=1 N=256 K=7168",
                     "T=16 N=2112 K=7168", "T=64 N=2112 K=7168", "T=256 N=2112 K=7168"};
  return define(std::move(all));
}
}  // namespace dodona
