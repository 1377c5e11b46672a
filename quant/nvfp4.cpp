#include "quant/nvfp4.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/amax.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/half.h"
#include "quant/nibble.h"
#include "quant/sizes.h"

namespace dodona::quant {

namespace {

using Elements = std::span<const float, nvfp4_block>;

std::array<std::uint8_t, 8> encode(Elements x, float factor, const Fp32Ops& ops) {
  std::array<std::uint8_t, 8> codes{};
  for (std::size_t j = 0; j < codes.size(); ++j)
    codes[j] = pack_nibbles(to_e2m1(ops.multiply(x[2 * j], factor)), to_e2m1(ops.multiply(x[2 * j + 1], factor)));
  return codes;
}

/// sfv, what the block scale is before its rounding.
float scale_value(float block_amax, float encode_scale, const Nvfp4Recipe& recipe) {
  const Fp32Ops& ops = recipe.ops;
  if (!recipe.exact) return ops.multiply(encode_scale, ops.multiply(block_amax, ops.reciprocal(6.0f)));
  constexpr float sixth = 1.0f / 6.0f;
  return block_amax != 0 ? block_amax * (encode_scale * sixth) : 0.0f;
}

/// r, by which the elements are multiplied.
float element_factor(float block_amax, float scale, float encode_scale, const Nvfp4Recipe& recipe) {
  const bool zero = recipe.zero == Nvfp4Zero::rounded_scale ? scale == 0 : block_amax == 0;
  if (zero) return 0;
  const Fp32Ops& ops = recipe.ops;
  if (!recipe.exact) return ops.reciprocal(ops.multiply(scale, ops.reciprocal(encode_scale)));
  const float factor = 1.0f / (scale * (1.0f / encode_scale));
  return factor < std::numeric_limits<float>::max() ? factor : std::numeric_limits<float>::max();
}

Nvfp4Block block_of(Elements x, float block_amax, float sfv, float encode_scale, const Nvfp4Recipe& recipe) {
  const std::uint8_t scale = to_e4m3_satfinite(sfv);
  return {scale, encode(x, element_factor(block_amax, e4m3_to_f32(scale), encode_scale, recipe), recipe.ops)};
}

float block_error(Elements x, const Nvfp4Block& block, float encode_scale, FourOverSix measure) {
  const float decode_scale = 1.0f / encode_scale;
  float sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float value = e2m1_to_f32(nibble(block.codes.data(), static_cast<std::int64_t>(i))) * e4m3_to_f32(block.scale) * decode_scale;
    const float error = value - x[i];
    sum += measure == FourOverSix::mse ? error * error : std::fabs(error);
  }
  return sum;
}

template <class T>
void dequantize(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales, std::int64_t rows, std::int64_t columns,
                float decode_scale, std::span<T> x) {
  require_multiple("columns", columns, nvfp4_block);
  require_size("x", x.size(), area(rows, columns));
  require_size("codes", codes.size(), rows * columns / 2);
  require_size("scales", scales.size(), rows * columns / nvfp4_block);
  for (std::size_t b = 0; b < scales.size(); ++b) {
    const T scale = e4m3_to_f32(scales[b]);
    for (std::size_t i = 0; i < nvfp4_block; ++i) {
      const T code = e2m1_to_f32(nibble(codes.data() + b * (nvfp4_block / 2), static_cast<std::int64_t>(i)));
      x[b * nvfp4_block + i] = code * scale * static_cast<T>(decode_scale);
    }
  }
}

}  // namespace

Nvfp4Block quantize_nvfp4_block(Elements x, float encode_scale, const Nvfp4Recipe& recipe) {
  const float block_amax = amax_or_nan(x);
  const float sfv = scale_value(block_amax, encode_scale, recipe);
  const Nvfp4Block six = block_of(x, block_amax, sfv, encode_scale, recipe);
  if (recipe.four_over_six == FourOverSix::off) return six;
  const Nvfp4Block four = block_of(x, block_amax, recipe.ops.multiply(sfv, 1.5f), encode_scale, recipe);
  const float error_six = block_error(x, six, encode_scale, recipe.four_over_six);
  const float error_four = block_error(x, four, encode_scale, recipe.four_over_six);
  return error_four < error_six ? four : six;
}

Nvfp4Block quantize_nvfp4_block_from_e4m3(std::span<const std::uint8_t, nvfp4_block> x, float encode_scale, const Fp32Ops& ops) {
  const float to_half = ops.multiply(6.0f, ops.reciprocal(encode_scale));
  std::array<float, nvfp4_block> elements{};
  for (std::size_t i = 0; i < x.size(); ++i) elements[i] = f16_to_f32(f32_to_f16(ops.multiply(e4m3_to_f32(x[i]), to_half)));
  const float sfv = ops.multiply(encode_scale, ops.multiply(amax_or_nan(elements), ops.reciprocal(6.0f)));
  const std::uint8_t scale = to_e4m3_satfinite(sfv);
  const float factor = sfv != 0 ? ops.multiply(encode_scale, ops.reciprocal(e4m3_to_f32(scale))) : 0.0f;
  return {scale, encode(elements, factor, ops)};
}

void quantize_nvfp4(std::span<const float> x, std::int64_t rows, std::int64_t columns, float encode_scale, const Nvfp4Recipe& recipe,
                    std::span<std::uint8_t> codes, std::span<std::uint8_t> scales) {
  require_multiple("columns", columns, nvfp4_block);
  require_size("x", x.size(), area(rows, columns));
  require_size("codes", codes.size(), rows * columns / 2);
  require_size("scales", scales.size(), rows * columns / nvfp4_block);
  for (std::size_t b = 0; b < scales.size(); ++b) {
    const Nvfp4Block block = quantize_nvfp4_block(x.subspan(b * nvfp4_block).first<nvfp4_block>(), encode_scale, recipe);
    scales[b] = block.scale;
    std::copy(block.codes.begin(), block.codes.end(), codes.begin() + static_cast<std::ptrdiff_t>(b * block.codes.size()));
  }
}

void dequantize_nvfp4(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales, std::int64_t rows, std::int64_t columns,
                      float decode_scale, std::span<float> x) {
  dequantize(codes, scales, rows, columns, decode_scale, x);
}

void dequantize_nvfp4(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales, std::int64_t rows, std::int64_t columns,
                      float decode_scale, std::span<double> x) {
  dequantize(codes, scales, rows, columns, decode_scale, x);
}

}  // namespace dodona::quant
