// MXFP4 and MXFP8: blocks of 32 along K with one UE8M0 scale, no tensor scale.
//
// scale = smallest power of two not below amax * rcp(6) (MXFP4) or amax * rcp(448) (MXFP8); elements are multiplied by its exact inverse
// and rounded to e2m1 or e4m3. Every result but that of the first product is exact, so the bits depend on nothing else. A scale byte of 0
// stands for "all zero": its elements are multiplied by 0 and keep only their sign. NaN elements do not count for the scale (unless there
// is nothing else: byte 255) and become code 7 (+6) or 0x7F. Source: FlashInfer `mxfp4_quantize`, `mxfp8_quantize`.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "quant/fp32_ops.h"

namespace dodona::quant {

inline constexpr int mx_block = 32;

struct Mxfp4Block {
  std::uint8_t scale;                  ///< UE8M0
  std::array<std::uint8_t, 16> codes;  ///< element 2j in the low nibble of byte j

  bool operator==(const Mxfp4Block&) const = default;
};

struct Mxfp8Block {
  std::uint8_t scale;                  ///< UE8M0
  std::array<std::uint8_t, 32> codes;  ///< e4m3

  bool operator==(const Mxfp8Block&) const = default;
};

Mxfp4Block quantize_mxfp4_block(std::span<const float, mx_block> x, const Fp32Ops& ops = flushing_reciprocal_ops);
Mxfp8Block quantize_mxfp8_block(std::span<const float, mx_block> x, const Fp32Ops& ops = flushing_reciprocal_ops);

/// x [rows, columns] to codes and linear scales [rows, columns/32]; codes are [rows, columns/2] (MXFP4) or [rows, columns] (MXFP8).
/// Throws bad_shape unless columns % 32 == 0 and all sizes fit.
void quantize_mxfp4(std::span<const float> x, std::int64_t rows, std::int64_t columns, std::span<std::uint8_t> codes,
                    std::span<std::uint8_t> scales, const Fp32Ops& ops = flushing_reciprocal_ops);
void quantize_mxfp8(std::span<const float> x, std::int64_t rows, std::int64_t columns, std::span<std::uint8_t> codes,
                    std::span<std::uint8_t> scales, const Fp32Ops& ops = flushing_reciprocal_ops);
/// Exact (scale byte 0 is 2^-127, 255 is NaN), up to fp32 overflow.
void dequantize_mxfp4(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales, std::int64_t rows, std::int64_t columns,
                      std::span<float> x);
void dequantize_mxfp8(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales, std::int64_t rows, std::int64_t columns,
                      std::span<float> x);

/// The scale byte ceil(max(log2(amax / 6), -127)) + 127 and codes by `to_e2m1_mxfp4_util`, for reading what that tool wrote (fp32 inputs).
/// Infinite amax gives 255.
/// Source: sglang `MXFP4QuantizeUtil.quantize`.
Mxfp4Block quantize_mxfp4_block_util(std::span<const float, mx_block> x);

}  // namespace dodona::quant
