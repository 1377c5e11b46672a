// FlashMLA's dense decode and sparse prefill on an H200, to the bit: rows of queries over blocks of keys in pairs.
//
// Of a pair of blocks one warpgroup has the first block and the left half of the output, the other the second and the right half. Per row:
//   first block:   S0 = q.k, k ascending; M = max(M, slog * max S0); s0 = 2^(M before - M); P0 = 2^fma(S0, slog, -M)
//   second block:  S1, elements 256 to 575 before 0 to 255; M, s1, P1 likewise. A pair of one block: s1 = 1 and no P1.
//   left:          O = O * s0 + T(P0) V0; then O = O * s1 + T(P1) V1
//   right:         O = O * s + T(P1) V1 + T(P0 * s1) V0, in this order; s = s1 * s0, in prefill 2^(M before the pair - M)
// each product a chain of steps of the tensor core that goes on from the scaled accumulator. The weights are added up unrounded, four sums
// for each half. Every fp32 operation flushes denormals.
//
// Source: FlashMLA csrc/sm90/decode/dense/splitkv_mla.cu, csrc/sm90/prefill/sparse/fwd.cu, and the machine code of sgl-kernel's build.
#pragma once

#include <cstdint>
#include <functional>

#include "ops/softmax/flash_mla/tile.h"

namespace dodona::ops {

/// What a tile works on.
struct FlashMlaBlocks {
  FlashMlaRange range;
  float slog;               ///< scale * log2 e, as the kernel rounds it
  float masked;             ///< the score of a key that a row does not see, and the maximum of none
  bool factors_multiplied;  ///< s, see above
  std::function<FlashMlaKeys(std::int32_t block)> keys, values;
  /// Scores of the block that rows do not see become `masked`.
  std::function<void(std::int32_t block, FlashMlaRows& scores)> mask;
};

class FlashMlaPairs {
 public:
  FlashMlaPairs(const FlashMlaTile& tile, const FlashMlaBlocks& blocks);

  /// The row's sum of weights, and the largest score, base 2.
  float sum(std::int64_t row) const;
  float largest(std::int64_t row) const { return largest_[static_cast<std::size_t>(row)]; }
  /// The row's 512 sums times `factor`.
  void scaled(std::int64_t row, float factor, float* out) const;

 private:
  void pair(std::int32_t k);
  FlashMlaRows scores(std::int32_t k, bool second) const;
  static void add_sums(FlashMlaRows& sums, const FlashMlaRows& factors, const FlashMlaRows& weights);

  const FlashMlaTile& tile_;
  const FlashMlaBlocks& blocks_;
  FlashMlaRows largest_, left_, right_, left_sums_, right_sums_;
};

}  // namespace dodona::ops
