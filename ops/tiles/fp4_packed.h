// NVFP4 weights packed for speed, once, and products with them. Their bits are those of the ops on the raw tensors.
#pragma once

#include <cstdint>
#include <span>

#include "dodona/exec.h"
#include "dodona/tensor.h"
#include "ops/tiles/fp4_tile.h"

namespace dodona::ops {

/// A weight [N, K] as products read it, see fp4_tile.h: 0.5625 bytes an element, K padded to a multiple of 64. Copies share the memory.
class PackedFp4 {
 public:
  PackedFp4() = default;
  /// b u8 [N, K/2], two codes a byte, even column in the low nibble; block_scale_b e4m3 [align(N,128), align(K/16,4)] in tiles of 128 x 4;
  /// both contiguous, N and K multiples of 32. Throws Error naming b or block_scale_b. Neither is needed afterwards.
  static PackedFp4 pack(const Tensor& b, const Tensor& block_scale_b, const Exec& exec);

  bool empty() const { return !memory_.defined(); }
  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }
  std::int64_t bytes() const { return empty() ? 0 : memory_.elements(); }
  Fp4Weights weights() const { return {memory_.as<std::uint8_t>(), nullptr, nullptr, n_, k_}; }

 private:
  Tensor memory_;
  std::int64_t n_ = 0, k_ = 0;
};

/// out[m,n] = round(alpha * sum of A and B), the bits of `cutlass_scaled_fp4_mm`. a u8 [M, K/2]; a_scale e4m3 [align(M,128),
/// align(K/16,4)] in tiles of 128 x 4; out bf16, f16 or f32 [M, N]; all contiguous. Throws Error naming the argument.
void fp4_mm_packed(const Tensor& a, const Tensor& a_scale, const PackedFp4& b, float alpha, const Tensor& out, const Exec& exec);

/// One expert's part of a grouped product: rows [row, row + rows) of a and out, whose scales begin at row `scale_row` of a_scale, a
/// multiple of 128.
struct PackedFp4Group {
  const PackedFp4* weights;  ///< may be nullptr where rows is 0
  std::int64_t row, rows, scale_row;
  float alpha;
};

/// The bits of `cutlass_fp4_group_mm`. a_scale e4m3 [R, align(K/16,4)]. Groups share no row, and weights of those with rows have the same
/// N and K. Rows of no group are not touched. Throws Error naming the argument or the group.
void fp4_group_mm_packed(const Tensor& a, const Tensor& a_scale, std::span<const PackedFp4Group> groups, const Tensor& out,
                         const Exec& exec);

}  // namespace dodona::ops
