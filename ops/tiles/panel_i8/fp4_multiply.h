// Products of FP4 rows with one or more FP4 weights in fast mode, raw or packed: what the single ops and the grouped one share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dodona/exec.h"
#include "dodona/tensor.h"
#include "ops/tiles/panel_i8/panel_i8.h"

namespace dodona::ops {

using Fp4Weights = I8Weights;

/// Rows of A that are multiplied with one weight.
struct Fp4Group {
  std::int64_t row, rows;  ///< of A and of the output
  std::int64_t scale_row;  ///< where the group begins in the matrix of A's scales, a multiple of 128
  Fp4Weights weights;
  float alpha;
};

/// out = round(fl32(acc/4 * alpha)), acc of doubled codes as panel_i8.h sums it. out [M, n], bf16, f16 or f32, contiguous; a u8 [M, k/2];
/// a_scales e4m3 [R, align(k/16,4)], of MXFP4 ue8m0 [R, align(k/32,4)], in tiles of 128 x 4. All weights have the same n and k. Rows of no
/// group are not touched. Arguments are those of a checked call.
void fp4_multiply(std::span<const Fp4Group> groups, const Tensor& a, const Tensor& a_scales, const Tensor& out, const Exec& exec,
                  I8Format format = I8Format::nvfp4);

/// Bytes of a packed weight: 0.5625 an element, K padded to a multiple of 64.
inline std::int64_t fp4_packed_bytes(std::int64_t n, std::int64_t k, I8Format format = I8Format::nvfp4) {
  return i8_packed_bytes(format, n, k);
}
/// Packs raw weights to so many bytes.
void fp4_pack(const Fp4Weights& raw, std::byte* out, const Exec& exec, I8Format format = I8Format::nvfp4);
/// Raw weights again, zeros in the padding of scales: codes of n * k/2 bytes, scales of their tiles.
void fp4_unpack(const Fp4Weights& packed, std::uint8_t* codes, std::uint8_t* scales, I8Format format = I8Format::nvfp4);

}  // namespace dodona::ops
