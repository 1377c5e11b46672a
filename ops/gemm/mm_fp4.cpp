#include "ops/gemm/mm_fp4.h"

#include <algorithm>
#include <vector>

#include "ops/base/block_scales.h"
#include "ops/schemes/scaled_fp4.h"
#include "ops/sums/products_gpu.h"
#include "ops/tiles/fp4_multiply.h"
#include "ops/tiles/panel.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"

namespace dodona::ops {
namespace {

DType scale_type(const MmFp4& op) {
  return op.use_nvfp4 ? f8_e4m3 : f8_e8m0;
}
std::int64_t k_of(const MmFp4& op) {
  return op.a.size(1) * 2;
}

BlockScales scales_of(const MmFp4& op, const Tensor& scales, bool tiles_of_8) {
  return {.type = scale_type(op),
          .data = scales.data(),
          .k = op.block_size,
          .layout = scale_layout(true, tiles_of_8),
          .columns = k_of(op) / op.block_size};
}

Product product_of(const MmFp4& op) {
  return fp4_product(fp4_operand(op.a, scales_of(op, op.a_descale, op.use_8x4_sf_layout)),
                     fp4_operand(op.b.transpose(0, 1), scales_of(op, op.b_descale, false)), op.alpha);
}

/// `mistaken`: b's scales are those of the next column.
template <bool mistaken>
void golden(const MmFp4& op, const Exec& exec, Reference* reference) {
  Product product = product_of(op);
  if (mistaken) product.b.scales.first = 1;
  golden_products({&product, 1}, fp4_by_blocks, op.out, reference, "out", exec);
}

void blackwell(const MmFp4& op, const Exec& exec) {
  const Product product = product_of(op);
  gpu_products({&product, 1}, fp4_by_blocks, op.out, exec);
}

// ---- fast

float alpha_of(const MmFp4& op) {
  return op.alpha.defined() ? *op.alpha.as<float>() : 1.0f;
}

/// The scales of a in tiles of 128 x 4, in which the tiles of integers take them.
Tensor in_large_tiles(const MmFp4& op) {
  if (!op.use_8x4_sf_layout) return op.a_descale;
  const BlockScales from = scales_of(op, op.a_descale, true);
  const std::int64_t rows = op.a.size(0);
  const Tensor tiles(u8, {quant::align(rows, 128), quant::align(from.columns, 4)});
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t c = 0; c < from.columns; ++c)
      tiles.as<std::uint8_t>()[quant::scale_offset(quant::ScaleLayout::swizzled_128x4, m, c, from.columns)] =
          op.a_descale.as<std::uint8_t>()[from.index(m, c * op.block_size)];
  return tiles;
}

/// An operand of MXFP4 for products in fp32: codes as e4m3, which holds them, and scales row by row.
struct MxOperand {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;

  explicit MxOperand(const Operand& operand) {
    const auto* const packed = static_cast<const std::uint8_t*>(operand.codes);
    for (std::int64_t i = 0; i < operand.count * operand.k; ++i)
      codes.push_back(quant::to_e4m3_satfinite(static_cast<double>(quant::e2m1_to_f32(packed[i / 2] >> (i % 2 * 4) & 0xFu))));
    for (std::int64_t line = 0; line < operand.count; ++line)
      for (std::int64_t k = 0; k < operand.k; k += operand.scales.k) scales.push_back(static_cast<float>(operand.scales.at(line, k)));
  }
  /// Whether products of two such scales and sums of codes stay among fp32's normal numbers.
  bool moderate() const {
    return std::all_of(scales.begin(), scales.end(), [](float scale) { return scale >= 0x1p-50f && scale <= 0x1p50f; });
  }
};

void multiply_mx(const MmFp4& op, const Exec& exec) {
  const Product whole = product_of(op);
  const MxOperand a(whole.a), b(whole.b);
  // NaN and scales that are out of proportion go by doubles.
  if (!a.moderate() || !b.moderate()) return golden_products({&whole, 1}, fp4_by_blocks, op.out, nullptr, "out", exec);
  const std::int64_t k = k_of(op), blocks = k / op.block_size;
  PanelProduct product{.m = op.a.size(0), .n = op.b.size(1), .k = k};
  product.a = {reinterpret_cast<const std::byte*>(a.codes.data()), k, 0, f8_e4m3};
  product.b = {reinterpret_cast<const std::byte*>(b.codes.data()), k, 0, f8_e4m3};
  product.block = op.block_size;
  product.a_scales = {a.scales.data(), 1, blocks, 1};
  product.b_scales = {b.scales.data(), 1, blocks, 1};
  const float alpha = alpha_of(op);
  product.epilogue.steps[product.epilogue.count++] = {.values = &alpha};
  product.epilogue.out_type = op.out_dtype;
  product.epilogue.out = op.out.as<std::byte>();
  product.epilogue.out_stride = product.n;
  panel_multiply(product, exec);
}

void fast(const MmFp4& op, const Exec& exec) {
  if (!op.use_nvfp4) return multiply_mx(op, exec);
  const Tensor a_scales = in_large_tiles(op);
  const Fp4Weights weights{nullptr, op.b.as<std::uint8_t>(), op.b_descale.as<std::uint8_t>(), op.b.size(1), k_of(op)};
  const Fp4Group group{0, op.a.size(0), 0, weights, alpha_of(op)};
  fp4_multiply({&group, 1}, op.a, a_scales, op.out, exec);
}

void check(const MmFp4& op) {
  const std::int64_t block = op.use_nvfp4 ? 16 : 32;
  const std::string with = std::string(" with use_nvfp4=") + (op.use_nvfp4 ? "true" : "false");
  if (op.block_size != block)
    throw Error(ErrorCode::bad_value, "", "block_size",
                "is " + std::to_string(op.block_size) + ", expected " + std::to_string(block) + with);
  const DType type = op.a_descale.dtype();
  if (type != u8 && type != scale_type(op))
    throw Error(ErrorCode::bad_dtype, "", "a_descale",
                "has dtype " + std::string(name(type)) + ", expected " + std::string(name(scale_type(op))) + " or u8" + with);
}

double flops(const MmFp4& op) {
  return 2.0 * static_cast<double>(op.out.elements()) * static_cast<double>(k_of(op));
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_mm_fp4() {
  const std::string mx = " --attr use_nvfp4=false --attr block_size=32 --dtype a_descale=f8_e8m0";
  return define<ops::MmFp4>({
      .contract = R"(
That of cutlass_scaled_fp4_mm, with either format: acc = sum over blocks along K of a_scale * b_scale * (sum of e2m1 products); block sums
and products of scales are exact; out = rn(fl32(alpha * acc)). ue8m0 scales are 2^(b - 127), of which 255 is NaN, and 0 no zero. Where
sums may be beyond fp32, nothing is compared, and a block may be flushed. Weights that a backend wants shuffled are unshuffled first.
 Blackwell mode: K ascending in steps of 64, one chain from +0, as cutlass_scaled_fp4_mm has it; MXFP4 by kind::mxf4.)",
      .golden = ops::golden<false>,
      .fast = ops::fast,
      .blackwell = ops::blackwell,
      .check = ops::check,
      .flops = ops::flops,
      .mistakes = {{"scales-one-row-down", "a column of b is multiplied with the scales of the next", ops::golden<true>}},
      .cases = {"M=4 N=32 K=640", "M=37 N=64 K=96 --attr out_dtype=f16 --without alpha", "M=9 N=32 K=192 --attr use_8x4_sf_layout=true",
                "M=5 N=32 K=256" + mx, "M=3 N=64 K=160 --attr use_8x4_sf_layout=true --dist wide-exponent" + mx},
      .bench_cases = {"M=1 N=4096 K=7168", "M=64 N=4096 K=7168", "M=64 N=4096 K=7168" + mx},
  });
}
}  // namespace dodona
