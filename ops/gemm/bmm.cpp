#include "ops/gemm/bmm.h"

#include "ops/sums/products.h"
#include "ops/sums/products_gpu.h"
#include "ops/tiles/dot.h"

namespace dodona::ops {
namespace {

DotProduct product_of(const Bmm& op) {
  return {op.mat1, op.mat2, op.out};
}

std::vector<Product> products_of(const Bmm& op) {
  return batched_products(op.mat1, op.mat2);
}

void check(const Bmm& op) {
  if (op.out_dtype != op.mat1.dtype() && op.out_dtype != f32)
    throw Error(ErrorCode::bad_dtype, "", "out_dtype",
                "is " + std::string(name(op.out_dtype)) + ", expected f32" +
                    (op.mat1.dtype() == f32 ? "" : " or " + std::string(name(op.mat1.dtype()))) + ", as mat1 has " +
                    std::string(name(op.mat1.dtype())));
  if (!has_dense_columns_or_rows(op.mat2))
    throw Error(ErrorCode::bad_stride, "", "mat2",
                "has strides " + to_string(op.mat2.strides()) + ", expected one of the last two to be 1");
  check_split_k(split_of(op), op.mat1.size(2));
}

void golden(const Bmm& op, const Exec& exec, Reference* reference) {
  golden_products(products_of(op), half_in_parts, op.out, reference, "out", exec);
}

void fast(const Bmm& op, const Exec& exec) {
  dot_multiply(product_of(op), exec);
}

std::optional<Refusal> unsupported(const Bmm& op, Mode mode) {
  return of_a_gpu(mode) ? unknown_half_product(mode, "mat1", op.mat1.dtype(), "mat2", op.mat2.dtype()) : std::nullopt;
}

void on_gpu(const Bmm& op, const Exec& exec) {
  gpu_products(products_of(op), in_chunks(half_in_parts, split_of(op)), op.out, exec);
}

double flops(const Bmm& op) {
  return dot_flops(product_of(op));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_bmm() {
  return define<ops::Bmm>({
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
      .cases = {"L=3 M=5 N=40 K=72", "L=2 M=1 N=33 K=128 --dtype mat1=f32 --attr out_dtype=f32",
                "L=1 M=9 N=17 K=33 --dtype mat1=f16 --dtype mat2=f16 --attr out_dtype=f16", "L=2 M=3 N=24 K=200 --attr split_k=4",
                "L=2 M=2 N=24 K=520 --attr split_k=4 --attr chunk_order=descending --attr block_k=128"},
      .bench_cases = {"L=128 M=1 N=512 K=128", "L=128 M=16 N=512 K=128", "L=128 M=16 N=128 K=512", "L=128 M=64 N=512 K=128"},
  });
}
}  // namespace dodona
