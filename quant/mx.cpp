#include "quant/mx.h"

#include <algorithm>
#include <cmath>

#include "quant/amax.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/nibble.h"
#include "quant/sizes.h"
#include "quant/ue8m0.h"

namespace dodona::quant {

namespace {

using Elements = std::span<const float, mx_block>;

float element_factor(std::uint8_t scale) {
  return scale == 0 ? 0.0f : ue8m0_inverse(scale);
}

void require_sizes(std::size_t x, std::size_t codes, std::size_t scales, std::int64_t rows, std::int64_t columns, std::int64_t per_byte) {
  require_multiple("columns", columns, mx_block);
  require_size("x", x, area(rows, columns));
  require_size("codes", codes, rows * columns / per_byte);
  require_size("scales", scales, rows * columns / mx_block);
}

std::uint8_t util_scale(float block_amax) {
  const float ratio = block_amax / 6.0f;
  if (ratio == 0) return 0;
  if (std::isinf(ratio)) return 255;
  return static_cast<std::uint8_t>(std::max(ceil_exponent_by_log2(ratio), -127) + 127);
}

}  // namespace

Mxfp4Block quantize_mxfp4_block(Elements x, const Fp32Ops& ops) {
  Mxfp4Block block{};
  block.scale = ue8m0_round_up(ops.multiply(amax_or_nan(x), ops.reciprocal(6.0f)));
  const float factor = element_factor(block.scale);
  for (std::size_t j = 0; j < block.codes.size(); ++j)
    block.codes[j] = pack_nibbles(to_e2m1(x[2 * j] * factor), to_e2m1(x[2 * j + 1] * factor));
  return block;
}

Mxfp8Block quantize_mxfp8_block(Elements x, const Fp32Ops& ops) {
  Mxfp8Block block{};
  block.scale = ue8m0_round_up(ops.multiply(amax_or_nan(x), ops.reciprocal(e4m3_max)));
  const float factor = element_factor(block.scale);
  for (std::size_t i = 0; i < block.codes.size(); ++i) block.codes[i] = to_e4m3_satfinite(x[i] * factor);
  return block;
}

Mxfp4Block quantize_mxfp4_block_util(Elements x) {
  Mxfp4Block block{};
  block.scale = util_scale(amax(x));
  const float factor = ue8m0_inverse(block.scale);
  for (std::size_t j = 0; j < block.codes.size(); ++j)
    block.codes[j] = pack_nibbles(to_e2m1_mxfp4_util(x[2 * j] * factor), to_e2m1_mxfp4_util(x[2 * j + 1] * factor));
  return block;
}

void quantize_mxfp4(std::span<const float> x, std::int64_t rows, std::int64_t columns, std::span<std::uint8_t> codes,
                    std::span<std::uint8_t> scales, const Fp32Ops& ops) {
  require_sizes(x.size(), codes.size(), scales.size(), rows, columns, 2);
  for (std::size_t b = 0; b < scales.size(); ++b) {
    const Mxfp4Block block = quantize_mxfp4_block(x.subspan(b * mx_block).first<mx_block>(), ops);
    scales[b] = block.scale;
    std::copy(block.codes.begin(), block.codes.end(), codes.begin() + static_cast<std::ptrdiff_t>(b * block.codes.size()));
  }
}

void quantize_mxfp8(std::span<const float> x, std::int64_t rows, std::int64_t columns, std::span<std::uint8_t> codes,
                    std::span<std::uint8_t> scales, const Fp32Ops& ops) {
  require_sizes(x.size(), codes.size(), scales.size(), rows, columns, 1);
  for (std::size_t b = 0; b < scales.size(); ++b) {
    const Mxfp8Block block = quantize_mxfp8_block(x.subspan(b * mx_block).first<mx_block>(), ops);
    scales[b] = block.scale;
    std::copy(block.codes.begin(), block.codes.end(), codes.begin() + static_cast<std::ptrdiff_t>(b * block.codes.size()));
  }
}

void dequantize_mxfp4(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales, std::int64_t rows, std::int64_t columns,
                      std::span<float> x) {
  require_sizes(x.size(), codes.size(), scales.size(), rows, columns, 2);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = e2m1_to_f32(nibble(codes.data(), static_cast<std::int64_t>(i))) * ue8m0_value(scales[i / mx_block]);
}

void dequantize_mxfp8(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales, std::int64_t rows, std::int64_t columns,
                      std::span<float> x) {
  require_sizes(x.size(), codes.size(), scales.size(), rows, columns, 1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = e4m3_to_f32(codes[i]) * ue8m0_value(scales[i / mx_block]);
}

}  // namespace dodona::quant
