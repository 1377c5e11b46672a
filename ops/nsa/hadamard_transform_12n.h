#pragma once

#include "ops/schemes/hadamard.h"

namespace dodona::ops {

/// As hadamard_transform, with (12 x 12 matrix of signs) (x) (Sylvester's of n): for dimensions 12 n, n a power of two; others are padded
/// with zeros. Source: sgl-kernel `hadamard_transform_12n` (the fast-hadamard-transform project).
struct HadamardTransform12n : HadamardCall {
  static constexpr std::int64_t chunks = 12;

  static constexpr OpInfo info{"hadamard_transform_12n", Category::nsa, Source::sgl_kernel};
  void describe(auto& op) { describe_transform(op, 12288); }
};

}  // namespace dodona::ops
