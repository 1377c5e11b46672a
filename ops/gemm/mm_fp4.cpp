#include "ops/gemm/mm_fp4.h"

#include <algorithm>
#include <string>

#include "ops/base/block_scales.h"
#include "ops/schemes/scaled_fp4.h"
#include "ops/sums/products_gpu.h"
#include "ops/tiles/panel_i8/fp4_multiply.h"
#include "quant/swizzle.h"

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
  Tensor tiles(u8, {quant::align(rows, 128), quant::align(from.columns, 4)});
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t c = 0; c < from.columns; ++c)
      tiles.as<std::uint8_t>()[quant::scale_offset(quant::ScaleLayout::swizzled_128x4, m, c, from.columns)] =
          op.a_descale.as<std::uint8_t>()[from.index(m, c * op.block_size)];
  return tiles;
}

/// Whether products of two such scales and sums of codes stay among fp32's normal numbers: ue8m0 from 2^-50 to 2^50, in tiles of 128 x 4.
bool moderate(const std::uint8_t* scales, std::int64_t rows, std::int64_t columns) {
  constexpr int least = 127 - 50, most = 127 + 50;
  const std::int64_t tiles = quant::ceil_div(columns, 4);
  std::uint8_t above = 0;  // the least
  const auto see = [&](std::uint8_t code) { above = std::max(above, static_cast<std::uint8_t>(code - least)); };
  for (std::int64_t row = 0; row < rows; row += 128)
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::uint8_t* const codes = scales + (row / 128 * tiles + tile) * 512;
      if (rows - row >= 128 && columns - 4 * tile >= 4) {
        for (int i = 0; i < 512; ++i) see(codes[i]);
      } else {
        for (std::int64_t r = 0; r < std::min<std::int64_t>(rows - row, 128); ++r)
          for (std::int64_t c = 0; c < std::min<std::int64_t>(columns - 4 * tile, 4); ++c)
            see(codes[quant::scale_offset(quant::ScaleLayout::swizzled_128x4, r, c, 4)]);
      }
    }
  return above <= most - least;
}

I8Format format_of(const MmFp4& op) {
  return op.use_nvfp4 ? I8Format::nvfp4 : I8Format::mxfp4;
}

/// Whether scales of raw weights are.
bool moderate_weights(const MmFp4& op) {
  return op.use_nvfp4 || moderate(op.b_descale.as<std::uint8_t>(), op.b.size(1), op.b.size(0) * 2 / op.block_size);
}

/// Returns false where nothing was multiplied, as rows' scales are out of proportion.
bool multiply(const MmFp4& op, const Fp4Weights& weights, const Exec& exec) {
  const std::int64_t m = op.a.size(0);
  const Tensor a_scales = in_large_tiles(op);
  if (!op.use_nvfp4 && !moderate(a_scales.as<std::uint8_t>(), m, weights.k / op.block_size)) return false;
  const Fp4Group group{0, m, 0, weights, alpha_of(op)};
  fp4_multiply({&group, 1}, op.a, a_scales, op.out, exec, format_of(op));
  return true;
}

/// NaN and scales that are out of proportion.
void multiply_by_doubles(const MmFp4& op, const Exec& exec) {
  const Product whole = product_of(op);
  golden_products({&whole, 1}, fp4_by_blocks, op.out, nullptr, "out", exec);
}

Fp4Weights raw_weights(const MmFp4& op) {
  return {nullptr, op.b.as<std::uint8_t>(), op.b_descale.as<std::uint8_t>(), op.b.size(1), op.b.size(0) * 2};
}

void fast(const MmFp4& op, const Exec& exec) {
  if (!moderate_weights(op) || !multiply(op, raw_weights(op), exec)) multiply_by_doubles(op, exec);
}

/// `scales` are those of an argument.
void check_format(const MmFp4& op, const char* argument, const Tensor& scales) {
  const std::int64_t block = op.use_nvfp4 ? 16 : 32;
  const std::string with = std::string(" with use_nvfp4=") + (op.use_nvfp4 ? "true" : "false");
  if (op.block_size != block)
    throw Error(ErrorCode::bad_value, "", "block_size",
                "is " + std::to_string(op.block_size) + ", expected " + std::to_string(block) + with);
  const DType type = scales.dtype();
  if (type != u8 && type != scale_type(op))
    throw Error(ErrorCode::bad_dtype, "", argument,
                "has dtype " + std::string(name(type)) + ", expected " + std::string(name(scale_type(op))) + " or u8" + with);
}

void check(const MmFp4& op) {
  check_format(op, "a_descale", op.a_descale);
}

// ---- packed weights: of MXFP4 whether all scales are moderate, behind the panels

constexpr std::int64_t packed_tail = 64;

std::int64_t panels_bytes(const MmFp4& op) {
  return fp4_packed_bytes(op.b.size(1), op.b.size(0) * 2, format_of(op));
}
std::int64_t packed_bytes(const MmFp4& op) {
  return panels_bytes(op) + (op.use_nvfp4 ? 0 : packed_tail);
}

void pack(const MmFp4& op, std::byte* part, const Exec& exec) {
  check_format(op, "b_descale", op.b_descale);
  fp4_pack(raw_weights(op), part, exec, format_of(op));
  if (!op.use_nvfp4) std::fill_n(part + panels_bytes(op), packed_tail, std::byte{moderate_weights(op)});
}

void fast_prepared(const MmFp4& op, const Prepared& prepared, const Exec& exec) {
  const std::int64_t n = op.b.size(1), k = k_of(op);
  if (prepared.bytes() != packed_bytes(op))
    throw Error(ErrorCode::bad_value, "", "use_nvfp4",
                std::string("is ") + (op.use_nvfp4 ? "true" : "false") + ", expected the format that b was packed in");
  const Fp4Weights weights{.packed = reinterpret_cast<const std::uint8_t*>(prepared.part(0)), .n = n, .k = k};
  const bool moderate = op.use_nvfp4 || prepared.part(0)[panels_bytes(op)] != std::byte{0};
  if (moderate && multiply(op, weights, exec)) return;
  MmFp4 raw = op;
  const Tensor codes(u8, {n, k / 2}), scales(scale_type(op), {op.b_descale.size(1), op.b_descale.size(0)});
  fp4_unpack(weights, codes.as<std::uint8_t>(), scales.as<std::uint8_t>(), format_of(op));
  raw.b = codes.transpose(0, 1), raw.b_descale = scales.transpose(0, 1);
  multiply_by_doubles(raw, exec);
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
      .prepare = {{"b", "b_descale"}, false, ops::packed_bytes, ops::pack, ops::fast_prepared},
      .check = ops::check,
      .flops = ops::flops,
      .mistakes = {{"scales-one-row-down", "a column of b is multiplied with the scales of the next", ops::golden<true>}},
      .cases = {"M=4 N=32 K=640", "M=37 N=64 K=96 --attr out_dtype=f16 --without alpha", "M=9 N=32 K=192 --attr use_8x4_sf_layout=true",
                "M=5 N=32 K=256" + mx, "M=3 N=64 K=160 --attr use_8x4_sf_layout=true --dist wide-exponent" + mx},
      .bench_cases = {"M=1 N=4096 K=7168", "M=64 N=4096 K=7168", "M=1 N=4096 K=7168" + mx, "M=4 N=4096 K=7168" + mx,
                      "M=16 N=4096 K=7168" + mx, "M=64 N=4096 K=7168" + mx, "M=256 N=4096 K=7168" + mx},
  });
}
}  // namespace dodona
