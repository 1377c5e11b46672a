#include "ops/gemm/fp8_blockwise_scaled_mm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/threads.h"
#include "ops/sums/products.h"
#include "ops/sums/products_hopper.h"
#include "quant/element.h"

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

void hopper(const Fp8BlockwiseScaledMm& op, const Exec& exec) {
  const Product product = product_of(op);
  hopper_products({&product, 1}, hopper_fp8_promoted, op.out, exec);
}

double flops(const Fp8BlockwiseScaledMm& op) {
  return 2.0 * static_cast<double>(op.out.elements()) * static_cast<double>(op.mat_a.size(1));
}

// ---- fast

constexpr std::int64_t lanes = 16;  // columns that are worked on together

/// Sixteen columns of a product over one block of K: sums = a b, k ascending. Products of e4m3 are exact in fp32.
void multiply_block(const float* a, const float* b, float* sums) {
  std::array<float, lanes> sum{};
  for (std::int64_t k = 0; k < block; ++k)
    for (std::size_t j = 0; j < lanes; ++j) sum[j] += a[k] * b[k * lanes + static_cast<std::int64_t>(j)];
  std::copy(sum.begin(), sum.end(), sums);
}

void multiply_columns(const Fp8BlockwiseScaledMm& op, const std::vector<float>& a, std::int64_t first) {
  const std::int64_t rows = op.mat_a.size(0), k = op.mat_a.size(1), n = op.mat_b.size(1);
  std::vector<float> column(block), b(block * lanes), sums(static_cast<std::size_t>(rows * lanes));
  for (std::int64_t begin = 0; begin < k; begin += block) {
    for (std::int64_t j = 0; j < lanes; ++j) {
      quant::to_f32(f8_e4m3, op.mat_b.as<std::uint8_t>() + (first + j) * k + begin, column.data(), block);
      for (std::int64_t i = 0; i < block; ++i) b[static_cast<std::size_t>(i * lanes + j)] = column[static_cast<std::size_t>(i)];
    }
    const float scale_b = op.scales_b.as<float>()[op.scales_b.stride(0) * (begin / block) + op.scales_b.stride(1) * (first / block)];
    for (std::int64_t i = 0; i < rows; ++i) {
      std::array<float, lanes> part;
      multiply_block(a.data() + i * k + begin, b.data(), part.data());
      const float scale = op.scales_a.as<float>()[op.scales_a.stride(0) * i + op.scales_a.stride(1) * (begin / block)] * scale_b;
      for (std::size_t j = 0; j < lanes; ++j) {
        float& sum = sums[static_cast<std::size_t>(i * lanes) + j];
        sum = std::fma(part[j], scale, sum);
      }
    }
  }
  for (std::int64_t i = 0; i < rows; ++i)
    quant::from_f32(op.out_dtype, sums.data() + i * lanes, op.out.as<std::uint16_t>() + i * n + first, lanes);
}

void fast(const Fp8BlockwiseScaledMm& op, const Exec& exec) {
  const std::int64_t rows = op.mat_a.size(0), k = op.mat_a.size(1), n = op.mat_b.size(1);
  if (rows == 0) return;
  std::vector<float> a(static_cast<std::size_t>(rows * k));
  quant::to_f32(f8_e4m3, op.mat_a.data(), a.data(), rows * k);
  parallel_for(exec.threads, n / lanes, static_cast<double>(rows * k * lanes),
               [&](std::int64_t part) { multiply_columns(op, a, part * lanes); });
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
order, for kernels that split K. Where these sums or products are beyond fp32, nothing is compared.)",
      .golden = ops::golden<ops::Scales::right>,
      .fast = ops::fast,
      .hopper = ops::hopper,
      .flops = ops::flops,
      .mistakes = {{"scales-row-major", "scales_a, which are M-major, are read as row-major", ops::golden<ops::Scales::row_major>},
                   {"scales-of-first-block", "the first scale of each row of A is used for all of K",
                    ops::golden<ops::Scales::of_first_block>}},
      .customary = {{"*", CustomaryKind::close, 2e-2, 1, "sgl-kernel/tests/test_fp8_blockwise_gemm.py"}},
      .cases = {"M=4 N=128 K=1536", "M=7 N=256 K=512 --attr out_dtype=f16", "M=33 N=128 K=384 --dist wide-exponent"},
      .bench_cases = {"M=1 N=4096 K=7168", "M=16 N=4096 K=7168", "M=64 N=4096 K=7168"},
  });
}
}  // namespace dodona
