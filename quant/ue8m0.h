// UE8M0, the power-of-two scale byte: 2^(b - 127) for b = 0..254, 255 is NaN; no sign, no zero.
//
// Kernels agree on the format and on little else: two ways to read b = 0 and b = 255, and four ways to write. Each has a name here.
#pragma once

#include <bit>
#include <cstdint>

#include "quant/minifloat.h"

namespace dodona::quant {

/// As the format defines it: 0 is 2^-127 (an fp32 denormal), 255 is NaN. MX formats are read so.
[[gnu::always_inline]] constexpr float ue8m0_value(std::uint8_t b) {
  if (b == 0) return 0x1p-127f;
  if (b == 255) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 23);
}

/// As a shift into the exponent field: 0 is 0.0, 255 is +inf. Block-FP8 scales are read so.
/// Source: sglang `_unpack_ue8m0_scale_for_triton`, DeepGEMM.
[[gnu::always_inline]] constexpr float ue8m0_bits_value(std::uint8_t b) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 23);
}

/// 2^-(b - 127), the exact factor that undoes a scale; b = 255 gives NaN.
[[gnu::always_inline]] constexpr float ue8m0_inverse(std::uint8_t b) {
  if (b == 255) return std::bit_cast<float>(0x7FC00000u);
  if (b == 254) return 0x1p-127f;
  return std::bit_cast<float>(static_cast<std::uint32_t>(254 - b) << 23);
}

/// E-bits: the exponent field of a scale that is a positive power of two already.
/// Source: sgl-kernel `per_token_group_quant_8bit_v2`, DeepGEMM `get_mn_major_tma_aligned_packed_ue8m0_tensor`.
[[gnu::always_inline]] constexpr std::uint8_t ue8m0_exponent_field(float scale) {
  return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(scale) >> 23);
}

/// Exponent of the smallest power of two not below `x`, from the bits: exponent field - 127, plus 1 if any mantissa bit is set. For
/// positive x; fp32 denormals count as 2^-127 with a mantissa, so they give -126, and 0 gives -127. Source: sgl-kernel
/// `per_token_group_quant_8bit_v2`.
[[gnu::always_inline]] constexpr int ceil_exponent_by_bits(float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  return static_cast<int>((u >> 23) & 0xFFu) - 127 + ((u & 0x7FFFFFu) != 0 ? 1 : 0);
}

/// The byte of `ceil_exponent_by_bits`.
[[gnu::always_inline]] constexpr std::uint8_t ue8m0_ceil_bits(float x) {
  return static_cast<std::uint8_t>(ceil_exponent_by_bits(x) + 127);
}

/// ceil(fl32(log2 x)) with a correctly rounded fp32 logarithm: a few units above a power of two the logarithm rounds back to the integer,
/// and the result is one smaller than `ceil_exponent_by_bits`. For finite positive x, denormals included.
int ceil_exponent_by_log2(float x);

/// The byte of 2^ceil(log2(max(x, 1e-10))); NaN counts as 1e-10, +inf gives 255.
/// Source: sgl-kernel `per_token_group_quant_8bit` (version 1).
std::uint8_t ue8m0_ceil_log2(float x);

/// The byte that version 1 stores for a scale 2^e in a fast-math build: the approximate logarithm of a power of two below 1 falls short of
/// the integer, and cutting it toward zero gives e + 1. (The codes are made with 2^e all the same.) Source: sgl-kernel
/// `per_token_group_quant_8bit` (version 1) on Hopper, as recorded.
[[gnu::always_inline]] constexpr std::uint8_t ue8m0_v1_fast_math(int e) {
  return static_cast<std::uint8_t>(e + 127 + (e < 0 ? 1 : 0));
}

/// Smallest power of two not below |x|, as the conversion instruction does it: values up to 2^-127 and 0 give 0, above 2^127 and infinity
/// 254, NaN 255; the sign is ignored. Source: CUDA `__nv_cvt_float_to_e8m0(x, __NV_SATFINITE, cudaRoundPosInf)`.
[[gnu::always_inline]] constexpr std::uint8_t ue8m0_round_up(float x) {
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return 255;
  if (magnitude >= 0x7F000001u) return 254;
  if (magnitude <= 0x00400000u) return 0;
  return static_cast<std::uint8_t>((magnitude + 0x7FFFFFu) >> 23);
}

/// The nearest power of two, of two equally near the greater; |x| below 2^-127 gives 0, from 1.5 * 2^127 on and infinity and NaN 255 (NaN);
/// the sign is ignored. This is what storing a number into an e8m0 tensor means where no kernel says otherwise.
[[gnu::always_inline]] constexpr std::uint8_t ue8m0_nearest(double x) {
  if (is_nan(x) || is_infinite(x)) return 255;
  const std::uint64_t magnitude = std::bit_cast<std::uint64_t>(x) & 0x7FFFFFFFFFFFFFFFu;
  // Adding half of the mantissa range carries into the exponent exactly from 1.5 on.
  const int exponent = static_cast<int>((magnitude + 0x8000000000000u) >> 52) - 1023;
  if (exponent < -127) return 0;
  return static_cast<std::uint8_t>(exponent > 127 ? 255 : exponent + 127);
}

}  // namespace dodona::quant
