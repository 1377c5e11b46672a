#include "ops/gemm/bmm.h"

#include "ops/schemes/half_product.h"

namespace dodona::ops {
namespace {

HalfProduct half_product_of(const Bmm& op) {
  return {.operands = {op.mat1, op.mat2, op.out},
          .a_name = "mat1",
          .b_name = "mat2",
          .out = op.out,
          .out_name = "out",
          .out_dtype = op.out_dtype,
          .split = split_of(op)};
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_bmm() {
  auto all = ops::half_product_functions<ops::Bmm, ops::half_product_of>();
  all.contract_version = 2;
  all.cases = {"L=3 M=5 N=40 K=72", "L=2 M=1 N=33 K=128 --dtype mat1=f32 --attr out_dtype=f32",
               "L=1 M=9 N=17 K=33 --dtype mat1=f16 --dtype mat2=f16 --attr out_dtype=f16", "L=2 M=3 N=24 K=200 --attr split_k=4",
               "L=2 M=2 N=24 K=520 --attr split_k=4 --attr chunk_order=descending --attr block_k=128"};
  all.bench_cases = {"L=128 M=1 N=512 K=128", "L=128 M=16 N=512 K=128", "L=128 M=16 N=128 K=512", "L=128 M=64 N=512 K=128"};
  return define(std::move(all));
}
}  // namespace dodona
