#pragma once

#include "ops/schemes/hadamard.h"

namespace dodona::ops {

/// out = scale * H x along the last dimension, H the Hadamard matrix in Sylvester's order: out[i] = scale * sum_j (-1)^popcount(i & j)
/// x[j]. A dimension that is no power of two is taken as padded with zeros, of which the result keeps as many elements as there are.
/// Source: sgl-kernel `hadamard_transform` (the fast-hadamard-transform project); the indexer of sparse attention rotates q and k by it.
struct HadamardTransform : HadamardCall {
  static constexpr std::int64_t chunks = 1;

  static constexpr OpInfo info{"hadamard_transform", Category::nsa, Source::sgl_kernel};
  void describe(auto& op) { describe_transform(op, 32768); }
};

}  // namespace dodona::ops
