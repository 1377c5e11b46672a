#include "ops/gemm/fp8_blockwise_scaled_mm.h"

#include "ops/sums/products.h"
#include "ops/sums/products_gpu.h"
#include "ops/tiles/panel.h"

namespace dodona::ops {
namespace {

constexpr std::int64_t block = 128;

/// Where the scales lie, and how wrong kernels read them.
enum class Scales { right, row_major, of_first_block };

Product product_of(const Fp8BlockwiseScaledMm& op, Scales scales = Scales::right) {
  const std::int64_t k = op.mat_a.size(1);
  Product product = batched_products(batch_of_one(op.mat_a), batch_of_one(op.mat_b)).front();
  product.a.scales = linear_scales(op.scales_a, 1, block);
  product.b.scales = linear_scales(op.scales_b.transpose(0, 1), block, block);
  if (scales == Scales::row_major) product.a.scales.line_stride = k / block, product.a.scales.k_stride = 1;
  if (scales == Scales::of_first_block) product.a.scales.k_stride = 0;
  return product;
}

template <Scales scales>
void golden(const Fp8BlockwiseScaledMm& op, const Exec& exec, Reference* reference) {
  const Product product = product_of(op, scales);
  golden_products({&product, 1}, hopper_fp8_promoted, op.out, reference, "out", exec);
}

void check(const Fp8BlockwiseScaledMm& op) {
  check_split_k(op.split_k, op.mat_a.size(1), op.mat_a.dtype());
}

std::optional<Refusal> unsupported(const Fp8BlockwiseScaledMm& op, Mode mode) {
  if (mode == Mode::hopper && op.kernel != "cutlass" && op.split_k > 1)
    return Refusal{"split_k", "of kernel '" + op.kernel + "' has no hopper mode: only CUTLASS's kernel splits K"};
  return {};
}

Accumulator accumulator_of(const Fp8BlockwiseScaledMm& op) {
  if (op.kernel == "triton") return triton_fp8_promoted;
  if (op.kernel == "triton_mma_sync") return triton_fp8_mma_sync_promoted;
  return in_chunks(hopper_fp8_promoted, op.split_k, f8_e4m3);
}

void hopper(const Fp8BlockwiseScaledMm& op, const Exec& exec) {
  const Product product = product_of(op);
  gpu_products({&product, 1}, accumulator_of(op), op.out, exec);
}

double flops(const Fp8BlockwiseScaledMm& op) {
  return 2.0 * static_cast<double>(op.out.elements()) * static_cast<double>(op.mat_a.size(1));
}

void fast(const Fp8BlockwiseScaledMm& op, const Exec& exec) {
  const std::int64_t k = op.mat_a.size(1), n = op.mat_b.size(1);
  PanelProduct product{.m = op.mat_a.size(0), .n = n, .k = k};
  product.a = {op.mat_a.as<std::byte>(), k, 0, f8_e4m3};
  product.b = {op.mat_b.as<std::byte>(), k, 0, f8_e4m3};
  product.block = block;
  product.a_scales = {op.scales_a.as<float>(), 1, op.scales_a.stride(0), op.scales_a.stride(1)};
  product.b_scales = {op.scales_b.as<float>(), block, op.scales_b.stride(1), op.scales_b.stride(0)};
  product.epilogue.out_type = op.out_dtype;
  product.epilogue.out = op.out.as<std::byte>();
  product.epilogue.out_stride = n;
  panel_multiply(product, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_fp8_blockwise_scaled_mm() {
  return define<ops::Fp8BlockwiseScaledMm>({
      .contract = R"(
For each 128 of K, ascending: t = sum of the products (exact in fp32), s = fl32(scale_a * scale_b), acc = fma(t, s, acc) in fp32 from
+0; out = rn(acc), to nearest even. NaN and infinities follow IEEE. Budget of t: four steps of the H200's fp8 tensor core, as in
bmm_fp8, and at least 128 units of 2^-24 of the larger of two sums, of its positive products and of its negative ones; times |s|, and
3 units of |t s| for s and for those who multiply with one scale after the other (all of t s where one of these products is denormal).
Then K/128 units of the larger of two sums, of all positive t s and of all negative ones, with their budgets: one rounding each, in any
order, for kernels that split K. Where these sums or products are beyond fp32, nothing is compared. `kernel` and `split_k`
name orders of hopper mode; golden and fast mode go by the formula above, whoever's kernel it is. split_k: chunks of
ceil(K/128 / split_k) blocks, each summed as above from zero, added from the first to the last in fp32: sgl-kernel's stream-K kernel,
which runs where K > 3 N, had 2 in three recorded calls on an H100.)",
      .golden = ops::golden<ops::Scales::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .unsupported = ops::unsupported,
      .check = ops::check,
      .flops = ops::flops,
      .mistakes = {{"scales-row-major", "scales_a, which are M-major, are read as row-major", ops::golden<ops::Scales::row_major>},
                   {"scales-of-first-block", "the first scale of each row of A is used for all of K",
                    ops::golden<ops::Scales::of_first_block>}},
      .customary = {{"*", CustomaryKind::close, 2e-2, 1, "sgl-kernel/tests/test_fp8_blockwise_gemm.py"}},
      .cases = {"M=4 N=128 K=1536", "M=7 N=256 K=512 --attr out_dtype=f16", "M=33 N=128 K=384 --dist wide-exponent",
                "M=5 N=128 K=256 --attr kernel=triton", "M=4 N=128 K=640 --attr split_k=2"},
      .bench_cases = {"M=1 N=4096 K=7168", "M=16 N=4096 K=7168", "M=64 N=4096 K=7168"},
  });
}
}  // namespace dodona
