// NVFP4: e2m1 codes in blocks of 16 along K, one e4m3 scale per block, one fp32 scale per tensor.
//
// A value is e2m1(code) * e4m3(scale) * g. Quantizers take the encode scale S = 1/g = 448*6/amax; checkpoints store the decode scale g.
// Order of operations, fl32 after each: sfv = S * (amax * rcp(6)); scale = e4m3(sfv); r = rcp(scale * rcp(S)); code = e2m1(x * r).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "quant/fp32_ops.h"

namespace dodona::quant {

inline constexpr int nvfp4_block = 16;

/// When all codes of a block become zero of their element's sign (r = 0).
enum class Nvfp4Zero {
  rounded_scale,  ///< when the e4m3 scale rounds to zero. Source: sgl-kernel `scaled_fp4_quant`
  block_amax,  ///< when all elements are zero; if only the scale is zero, r is infinite: non-zero elements become +-6, zeros NaN and so +6.
               ///< Source: FlashInfer `fp4_quantize`
};

/// Error by which each block chooses between mapping its largest element to 6 and to 4.
enum class FourOverSix { off, mae, mse };

struct Nvfp4Recipe {
  Fp32Ops ops = flushing_reciprocal_ops;
  Nvfp4Zero zero = Nvfp4Zero::rounded_scale;
  /// sfv = amax * (S * fl32(1/6)), r = min(1 / (scale * (1/S)), largest fp32), with true divisions.
  /// Source: FlashInfer with FLASHINFER_DISABLE_FP4_QUANT_FAST_MATH=1.
  bool exact = false;
  /// The alternative is a block with sfv * 1.5. It is taken if the sum of |error| or of error^2 over the block, added in order in fp32, is
  /// smaller; error = fl32(fl32(code*scale * fl32(1/S)) - x). Source: FlashInfer FLASHINFER_NVFP4_4OVER6, Transformer Engine 4over6.
  FourOverSix four_over_six = FourOverSix::off;
};

inline constexpr Nvfp4Recipe nvfp4_sgl_kernel{};
inline constexpr Nvfp4Recipe nvfp4_flashinfer{flushing_reciprocal_ops, Nvfp4Zero::block_amax, false, FourOverSix::off};
inline constexpr Nvfp4Recipe nvfp4_flashinfer_exact{ieee_ops, Nvfp4Zero::block_amax, true, FourOverSix::off};

/// S = 448*6/amax. Infinite for amax = 0.
inline float nvfp4_encode_scale(float tensor_amax) {
  return 2688.0f / tensor_amax;
}
/// g = amax/(448*6): `weight_scale_2` and `input_scale` of ModelOpt checkpoints.
inline float nvfp4_decode_scale(float tensor_amax) {
  return tensor_amax / 2688.0f;
}

struct Nvfp4Block {
  std::uint8_t scale;                 ///< e4m3, not negative; 0x7F (NaN) if all elements are NaN
  std::array<std::uint8_t, 8> codes;  ///< element 2j in the low nibble of byte j

  bool operator==(const Nvfp4Block&) const = default;
};

/// NaN elements do not count for the scale (unless there is nothing else) and become +6.
Nvfp4Block quantize_nvfp4_block(std::span<const float, nvfp4_block> x, float encode_scale, const Nvfp4Recipe& recipe);

/// A block of e4m3 inputs: elements become f16(x * fl32(6 * rcp(S))), and r = S * rcp(scale), or 0 when sfv is 0; otherwise as above.
/// Source: FlashInfer `fp4_quantize` of FP8 inputs.
Nvfp4Block quantize_nvfp4_block_from_e4m3(std::span<const std::uint8_t, nvfp4_block> x, float encode_scale, const Fp32Ops& ops);

/// x [rows, columns] to codes [rows, columns/2] and linear scales [rows, columns/16]. Throws bad_shape unless columns % 16 == 0 and all
/// sizes fit.
void quantize_nvfp4(std::span<const float> x, std::int64_t rows, std::int64_t columns, float encode_scale, const Nvfp4Recipe& recipe,
                    std::span<std::uint8_t> codes, std::span<std::uint8_t> scales);

/// code * scale is exact; its product with the decode scale rounds once in fp32 and is exact in double.
void dequantize_nvfp4(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales, std::int64_t rows, std::int64_t columns,
                      float decode_scale, std::span<float> x);
void dequantize_nvfp4(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales, std::int64_t rows, std::int64_t columns,
                      float decode_scale, std::span<double> x);

}  // namespace dodona::quant
