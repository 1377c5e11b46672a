#include "ops/gemm/cutlass_scaled_fp4_mm.h"

#include "ops/schemes/scaled_fp4.h"
#include "ops/sums/products_gpu.h"
#include "ops/tiles/panel_i8/fp4_multiply.h"

namespace dodona::ops {
namespace {

double flops(const CutlassScaledFp4Mm& op) {
  return 2.0 * static_cast<double>(op.out.elements()) * 2.0 * static_cast<double>(op.a.size(1));
}

Product product_of(const CutlassScaledFp4Mm& op) {
  const std::int64_t k = op.a.size(1) * 2;
  return fp4_product(fp4_operand(op.a, nvfp4_scales(op.block_scale_a.data(), k)),
                     fp4_operand(op.b, nvfp4_scales(op.block_scale_b.data(), k)), op.alpha);
}

void golden(const CutlassScaledFp4Mm& op, const Exec& exec, Reference* reference) {
  const Product product = product_of(op);
  golden_products({&product, 1}, op.accumulator == "tcgen05" ? tcgen05_nvfp4 : fp4_by_blocks, op.out, reference, "out", exec);
}

void blackwell(const CutlassScaledFp4Mm& op, const Exec& exec) {
  const Product product = product_of(op);
  gpu_products({&product, 1}, fp4_by_blocks, op.out, exec);
}

// ---- fast

Fp4Weights raw_weights(const CutlassScaledFp4Mm& op) {
  return {nullptr, op.b.as<std::uint8_t>(), op.block_scale_b.as<std::uint8_t>(), op.b.size(0), op.b.size(1) * 2};
}

void multiply(const CutlassScaledFp4Mm& op, const Fp4Weights& weights, const Exec& exec) {
  const Fp4Group group{0, op.a.size(0), 0, weights, *op.alpha.as<float>()};
  fp4_multiply({&group, 1}, op.a, op.block_scale_a, op.out, exec);
}

void fast(const CutlassScaledFp4Mm& op, const Exec& exec) {
  multiply(op, raw_weights(op), exec);
}

void fast_prepared(const CutlassScaledFp4Mm& op, const Prepared& prepared, const Exec& exec) {
  multiply(op, {.packed = reinterpret_cast<const std::uint8_t*>(prepared.part(0)), .n = op.b.size(0), .k = op.b.size(1) * 2}, exec);
}

std::int64_t packed_bytes(const CutlassScaledFp4Mm& op) {
  return fp4_packed_bytes(op.b.size(0), op.b.size(1) * 2);
}

void pack(const CutlassScaledFp4Mm& op, std::byte* part, const Exec& exec) {
  fp4_pack(raw_weights(op), part, exec);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_cutlass_scaled_fp4_mm() {
  return define<ops::CutlassScaledFp4Mm>({
      .contract = R"(
acc = sum over blocks of 16 along K of A_scale * B_scale * (sum of e2m1 products); block sums and products of scales are exact.
out = rn(fl32(alpha * acc)), to nearest even. NaN scales give NaN; overflow gives infinity. Padding of scales is not read.
Budget of acc: K/16 units of 2^-23 of the larger of two sums, of all positive blocks and of all negative ones (one rounding or
cut for each block, any order), and of each single product the bits that lie 25 places below the exponent of the same sum plus
the largest product, which few of them have (units that align products, not blocks). Then 2^-24 relative for the product with
alpha. With accumulator=tcgen05 that of acc follows the steps of blackwell mode from the first to the last: five addends cut at its
grid and the sum so far cut to 24 bits, or 2^-24 of that sum for each of its four blocks (fp32 additions in the same order),
whichever is more; fp32 sums in another order are not that kernel's. There golden
mode does not read the sign of scales either, which fast mode always does.

Blackwell mode: K ascending in steps of 64 (tcgen05.mma kind::mxf4nvf4), one chain from +0 as CUTLASS's persistent kernels have it,
without split or promotion; the four blocks of a step and acc are cut toward zero 35 bits below the largest exponent among acc and
the blocks' scales, added exactly, and cut to 24 bits. The sign of scales is not read. out = rn(fl32(alpha * acc)), denormals kept;
where alpha is negative or the product underflows, a kernel that adds beta * C may give +0 for -0. A K that ends within a step goes
on with zeros, whatever scales stand there: a kernel that reads a NaN in that padding gives NaN.)",
      .contract_version = 2,
      .golden = ops::golden,
      .fast = ops::fast,
      .blackwell = ops::blackwell,
      .prepare = {.arguments = {"b", "block_scale_b"}, .bytes = ops::packed_bytes, .pack = ops::pack, .fast = ops::fast_prepared},
      .flops = ops::flops,
      .cases = {"M=4 N=32 K=1024", "M=37 N=32 K=96 --attr out_dtype=f16", "M=7 N=64 K=192 --attr out_dtype=f32",
                "M=5 N=32 K=1248 --attr out_dtype=f32 --attr accumulator=tcgen05"},
      .bench_cases = {"M=1 N=4096 K=7168", "M=4 N=4096 K=7168", "M=16 N=4096 K=7168", "M=64 N=4096 K=7168", "M=256 N=4096 K=7168"},
  });
}
}  // namespace dodona
