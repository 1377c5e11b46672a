// 4-bit integer weights: packing along K, zero points packed along N, and the interleaved scales of W4A8.
//
// wna16 (unsigned): weights [N, K/2], element 2j of K in the low nibble; symmetric zero point 8 (int4) or 128 (8-bit weights); a zero-point
// tensor is packed along N: [N/2, G], channel 2j in the low nibble.
// W4A8 (signed): weights [N, K/2], two's complement nibbles, same order.
#pragma once

#include <cstdint>
#include <span>

#include "quant/nibble.h"

namespace dodona::quant {

inline constexpr int uint4_zero_point = 8;
inline constexpr int uint8_zero_point = 128;

/// values[2j] to the low, values[2j+1] to the high nibble of packed[j]; only the low four bits of a value count.
/// Signed (two's complement) and unsigned values pack alike. Throws bad_shape unless values.size() == 2 * packed.size().
void pack_int4(std::span<const std::int8_t> values, std::span<std::uint8_t> packed);
/// The values as -8..7.
void unpack_int4(std::span<const std::uint8_t> packed, std::span<std::int8_t> values);
/// The values as 0..15.
void unpack_uint4(std::span<const std::uint8_t> packed, std::span<std::uint8_t> values);

/// Zero point of channel `n`, group `g` in `zeros` [N/2, groups].
/// Source: sglang `fused_moe_kernel_gptq_awq`.
[[gnu::always_inline]] constexpr std::uint8_t wna16_zero_point(const std::uint8_t* zeros, std::int64_t groups, std::int64_t n,
                                                               std::int64_t g) {
  return static_cast<std::uint8_t>((zeros[n / 2 * groups + g] >> (n % 2 * 4)) & 0xF);
}
/// values [n, groups] to packed [n/2, groups]. Throws bad_shape if n is odd or a size does not fit.
void pack_wna16_zero_points(std::span<const std::uint8_t> values, std::int64_t n, std::int64_t groups, std::span<std::uint8_t> packed);
void unpack_wna16_zero_points(std::span<const std::uint8_t> packed, std::int64_t n, std::int64_t groups, std::span<std::uint8_t> values);

/// How many groups W4A8 interleaves: 4 if the number of groups is a multiple of 4, else 1.
[[gnu::always_inline]] constexpr std::int64_t w4a8_scale_alignment(std::int64_t groups) {
  return groups % 4 == 0 ? 4 : 1;
}
/// Where the scale of channel `n`, group `g` of a logical [n_channels, groups] lies: [G/4, N*4] at (g/4, n*4 + g%4), or [G, N] at (g, n)
/// when the groups cannot be interleaved. One expert; experts follow each other. Source: sglang `W4AFp8MoEMethod` (`_interleave_scales`).
[[gnu::always_inline]] constexpr std::int64_t w4a8_scale_offset(std::int64_t n_channels, std::int64_t groups, std::int64_t n,
                                                                std::int64_t g) {
  const std::int64_t a = w4a8_scale_alignment(groups);
  return g / a * n_channels * a + n * a + g % a;
}
/// logical [n_channels, groups] to storage, bf16 codes. Throws bad_shape if a size does not fit.
void interleave_w4a8_scales(std::span<const std::uint16_t> logical, std::int64_t n_channels, std::int64_t groups,
                            std::span<std::uint16_t> storage);
void deinterleave_w4a8_scales(std::span<const std::uint16_t> storage, std::int64_t n_channels, std::int64_t groups,
                              std::span<std::uint16_t> logical);

}  // namespace dodona::quant
