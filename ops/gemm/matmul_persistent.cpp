#include "ops/gemm/matmul_persistent.h"

#include <vector>

#include "core/threads.h"
#include "ops/base/rows.h"
#include "ops/sums/products.h"
#include "ops/sums/products_gpu.h"
#include "ops/tiles/dot/dot.h"
#include "ops/tiles/float_vector.h"

namespace dodona::ops {
namespace {

bool cuts(const MatmulPersistent& op) {
  return op.a.dtype() == f32 && op.input_precision == "tf32";
}

/// Without the bits that TF32 has not; what is no fp32 as it is.
Tensor operand_of(const MatmulPersistent& op, const Tensor& matrix) {
  if (!cuts(op)) return matrix;
  Tensor cut = matrix.clone();
  for (std::int64_t i = 0; i < cut.elements(); ++i) cut.as<std::uint32_t>()[i] &= ~std::uint32_t{0x1FFF};
  return cut;
}

/// A one among a kernel's numbers is part of its code: Triton then knows that there is one turn of the loop, whose product starts from
/// zero, and makes one operation of it and of the addition behind it.
bool starts_from_bias(const MatmulPersistent& op) {
  return op.bias.defined() && op.kernel == "triton" && op.a.size(1) == 1;
}

/// The operands must live as long.
Product product_of(const MatmulPersistent& op, const Tensor& a, const Tensor& b) {
  Product product = batched_products(batch_of_one(a), batch_of_one(b)).front();
  product.epilogue.keeps_denormals = true;
  if (!op.bias.defined()) return product;
  product.epilogue.addend.a = column_term(op.bias);
  product.epilogue.starts = starts_from_bias(op);
  if (op.kernel == "deep_gemm") product.epilogue.narrowed = bf16;
  return product;
}

const Accumulator& accumulator_of(const MatmulPersistent& op) {
  return cuts(op) ? tf32_in_parts : half_in_parts;
}

template <bool as_they_are>
void golden(const MatmulPersistent& op, const Exec& exec, Reference* reference) {
  const Tensor a = as_they_are ? op.a : operand_of(op, op.a), b = as_they_are ? op.b : operand_of(op, op.b);
  const Product product = product_of(op, a, b);
  golden_products({&product, 1}, accumulator_of(op), op.c, reference, "c", exec);
}

void on_gpu(const MatmulPersistent& op, const Exec& exec) {
  const Product product = product_of(op, op.a, op.b);
  Accumulator in_one_chain = accumulator_of(op);
  in_one_chain.parts = 1;
  gpu_products({&product, 1}, in_one_chain, op.c, exec);
}

std::optional<Refusal> unsupported(const MatmulPersistent& op, Mode mode) {
  if (!of_a_gpu(mode)) return {};
  const std::string gpu(name(mode));
  if (op.a.dtype() == f32 && mode != Mode::hopper)
    return Refusal{"a", "of dtype f32 has no " + gpu + " mode: products of TF32 are an H100's"};
  if (op.a.dtype() == f32 && !cuts(op)) return Refusal{"input_precision", "'ieee' has no " + gpu + " mode: the kernel multiplies TF32"};
  if (op.kernel == "deep_gemm" && mode != Mode::hopper && mode != Mode::blackwell)
    return Refusal{"kernel", "'deep_gemm' has no " + gpu + " mode: it is written for an H100 and a B200"};
  return {};
}

/// Sums in fp32 where a bias is added to them, rounded ones else.
void fast(const MatmulPersistent& op, const Exec& exec) {
  const bool dense_a = op.a.size(1) <= 1 || op.a.stride(1) == 1;
  const Tensor a = cuts(op) ? operand_of(op, op.a) : dense_a ? op.a : op.a.clone();
  const Tensor b = cuts(op) ? operand_of(op, op.b) : has_dense_columns_or_rows(op.b) ? op.b : op.b.clone();
  const bool widened = op.bias.defined() && op.kernel == "triton" && op.c.dtype() != f32;
  const Tensor sums = widened ? Tensor(f32, op.c.shape()) : op.c;
  dot_multiply({batch_of_one(a), batch_of_one(b), batch_of_one(sums)}, exec);
  if (!op.bias.defined()) return;
  const FloatVector bias(op.bias, exec);
  const std::int64_t columns = op.c.size(1);
  parallel_for(exec.threads, op.c.size(0), static_cast<double>(columns), [&](std::int64_t i) {
    std::vector<float> row(static_cast<std::size_t>(columns));
    quant::to_f32(sums.dtype(), row_begin(sums, i, bits(sums.dtype()) / 8), row.data(), columns);
    for (std::int64_t j = 0; j < columns; ++j) row[static_cast<std::size_t>(j)] += bias.data()[j];
    quant::from_f32(op.c.dtype(), row.data(), row_begin_mutable(op.c, i, bits(op.c.dtype()) / 8), columns);
  });
}

void check(const MatmulPersistent& op) {
  if (op.kernel == "deep_gemm" && op.a.dtype() != bf16)
    throw Error(ErrorCode::bad_dtype, "", "a", "has dtype " + std::string(name(op.a.dtype())) + ", expected bf16 with kernel=deep_gemm");
}

double flops(const MatmulPersistent& op) {
  return dot_flops({batch_of_one(op.a), batch_of_one(op.b), batch_of_one(op.c)});
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_matmul_persistent() {
  return define<ops::MatmulPersistent>({
      .contract = std::string(ops::half_sum_contract) + R"(
 With input_precision=tf32 the operands of f32 lose their low 13 bits first: they are cut toward zero to 10 bits of mantissa. c =
rn(fl32(acc + bias)); with kernel=deep_gemm c = rn(rn(acc) + bias). Of K = 1 Triton makes one operation with the bias, for a one is part of
its code: the tensor core's step then starts from the bias and cuts the sum where an addition would round it. GPUs' modes do so; budget:
2^-24 of that sum, and of the larger of its two addends.
 GPUs' modes: K ascending in one chain of the tensor core's steps from +0, 16 products (8 of TF32, 16-bit types in two steps of 8 before
an H100); whatever the tiles, which are 128 x 128 x 64 for bf16, 128 x 256 x 64 for f16 and 128 x 128 x 32 for f32. Denormals are kept.)",
      .contract_version = 2,
      .golden = ops::golden<false>,
      .fast = ops::fast,
      .hopper = ops::on_gpu,
      .blackwell = ops::on_gpu,
      .ada = ops::on_gpu,
      .ampere = ops::on_gpu,
      .unsupported = ops::unsupported,
      .check = ops::check,
      .flops = ops::flops,
      .mistakes = {{"tf32-not-cut", "operands of f32 are multiplied with all their bits", ops::golden<true>}},
      .cases = {"M=7 N=37 K=200", "M=5 N=48 K=456 --with bias", "M=9 N=16 K=96 --dtype a=f16 --with bias --dist wide-exponent",
                "M=4 N=33 K=130 --dtype a=f32 --with bias", "M=3 N=24 K=80 --attr kernel=deep_gemm --with bias",
                "M=2 N=20 K=48 --dtype a=f32 --attr input_precision=ieee"},
      .bench_cases = {"M=1 N=7168 K=2048", "M=16 N=2112 K=7168", "M=64 N=2112 K=7168", "M=64 N=2112 K=7168 --with bias"},
  });
}
}  // namespace dodona
