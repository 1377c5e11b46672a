// Block-scaled FP8 (e4m3): activations with one scale per row and group along K, weights with one per block of 128 x 128.
//
// A value is e4m3(code) * scale. Edge blocks may be partial: 576 x 7168 has 5 x 56 scales. In quantization NaN elements do not count for
// the scale and become -448, because the clamp takes the lower bound first.
#pragma once

#include <cstdint>
#include <span>

#include "quant/group_scale.h"

namespace dodona::quant {

inline constexpr std::int64_t fp8_block_size = 128;

/// Quantizes one group and returns its scale. Throws bad_shape unless both spans are of one length.
float quantize_fp8_group(std::span<const float> x, const GroupRecipe& recipe, std::span<std::uint8_t> codes);
/// The same to int8 with limits -128 and 127: clamp, then cut toward zero. NaN gives -128.
float quantize_int8_group(std::span<const float> x, const GroupRecipe& recipe, std::span<std::int8_t> codes);

/// x [rows, columns] to codes [rows, columns] and scales [rows, ceil(columns/group)] (row-major). Throws bad_shape if a size does not fit.
void quantize_fp8_rows(std::span<const float> x, std::int64_t rows, std::int64_t columns, std::int64_t group, const GroupRecipe& recipe,
                       std::span<std::uint8_t> codes, std::span<float> scales);
/// x [rows, columns] to codes and scales [ceil(rows/128), ceil(columns/128)].
void quantize_fp8_blocks(std::span<const float> x, std::int64_t rows, std::int64_t columns, const GroupRecipe& recipe,
                         std::span<std::uint8_t> codes, std::span<float> scales);

/// x = fl32(code * scale).
void dequantize_fp8_rows(std::span<const std::uint8_t> codes, std::span<const float> scales, std::int64_t rows, std::int64_t columns,
                         std::int64_t group, std::span<float> x);
/// x = fl32(code * scale).
void dequantize_fp8_blocks(std::span<const std::uint8_t> codes, std::span<const float> scales, std::int64_t rows, std::int64_t columns,
                           std::span<float> x);
/// x = bf16(fl32(code * scale)), as bf16 codes.
/// Source: DeepSeek inference `weight_dequant`.
void dequantize_fp8_blocks_bf16(std::span<const std::uint8_t> codes, std::span<const float> scales, std::int64_t rows, std::int64_t columns,
                                std::span<std::uint16_t> x);

/// Weights with any scales to weights with power-of-two scales: dequantized to bf16, then per block scale = 2^ceil(log2(max(amax, 1e-4) /
/// 448)) and code = e4m3(x * (1/scale)). Input and output may be the same memory. Source: sglang `requant_weight_ue8m0`.
void requantize_weight_ue8m0(std::span<const std::uint8_t> codes, std::span<const float> scales, std::int64_t rows, std::int64_t columns,
                             std::span<std::uint8_t> out_codes, std::span<float> out_scales);

}  // namespace dodona::quant
