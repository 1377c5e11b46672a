// QServe W4A8 weights: unsigned 4-bit weights [N, K] in tiles of 32 x 32 (512 bytes each), and second-level scales whose channels are
// permuted inside every 32.
// Source: sgl-kernel `qserve_w4a8_per_chn_gemm` and `qserve_w4a8_per_group_gemm`; the packing of the QoQ checkpoints.
#pragma once

#include <cstdint>
#include <span>

namespace dodona::quant {

/// Where one weight lies: byte in the [N, K/2] buffer, and the shift to its nibble (0 or 4).
struct QserveLocation {
  std::int64_t byte;
  int shift;
};

/// With n%32 = 16a + 8b + c and k%32 = 16d + 4e + f: byte = tile*512 + 64c + 16e + 8d + 4b + f, high nibble if a.
[[gnu::always_inline]] constexpr QserveLocation qserve_location(std::int64_t n, std::int64_t k, std::int64_t columns) {
  const std::int64_t tile = n / 32 * (columns / 32) + k / 32;
  const std::int64_t a = n % 32 / 16, b = n % 16 / 8, c = n % 8;
  const std::int64_t d = k % 32 / 16, e = k % 16 / 4, f = k % 4;
  return {tile * 512 + c * 64 + e * 16 + d * 8 + b * 4 + f, static_cast<int>(a) * 4};
}

/// The weight at (n, k), 0..15.
[[gnu::always_inline]] constexpr std::uint8_t qserve_weight(const std::uint8_t* packed, std::int64_t n, std::int64_t k,
                                                            std::int64_t columns) {
  const QserveLocation at = qserve_location(n, k, columns);
  return static_cast<std::uint8_t>((packed[at.byte] >> at.shift) & 0xF);
}

/// values [rows, columns], 0..15 each, to packed [rows, columns/2]. Throws bad_shape unless both sizes are multiples of 32.
void pack_qserve(std::span<const std::uint8_t> values, std::int64_t rows, std::int64_t columns, std::span<std::uint8_t> packed);
void unpack_qserve(std::span<const std::uint8_t> packed, std::int64_t rows, std::int64_t columns, std::span<std::uint8_t> values);

/// Storage position of a channel's second-level scale: inside each 32, position p holds channel (p%4)*8 + p/4.
[[gnu::always_inline]] constexpr std::int64_t qserve_scale_position(std::int64_t channel) {
  const std::int64_t c = channel % 32;
  return channel - c + c % 8 * 4 + c / 8;
}

/// logical [groups, channels] in natural order to storage order, for `s2_scales` and `s2_zeros`. Throws bad_shape unless channels % 32 ==
/// 0.
void permute_qserve_scales(std::span<const std::int8_t> logical, std::int64_t groups, std::int64_t channels,
                           std::span<std::int8_t> storage);
void unpermute_qserve_scales(std::span<const std::int8_t> storage, std::int64_t groups, std::int64_t channels,
                             std::span<std::int8_t> logical);

/// The int8 weight of the per-group kernel: (q * scale + zero) mod 256 as int8, where `zero` is what `s2_zeros` stores, -(zero
/// point)*scale. Exact for the kernel only while q * scale < 256, that is scale <= 17.
[[gnu::always_inline]] constexpr std::int8_t qserve_group_weight(std::uint8_t q, std::int8_t scale, std::int8_t zero) {
  return static_cast<std::int8_t>(static_cast<std::uint8_t>(q * static_cast<std::uint8_t>(scale) + static_cast<std::uint8_t>(zero)));
}

}  // namespace dodona::quant
