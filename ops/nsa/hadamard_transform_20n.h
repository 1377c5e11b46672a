#pragma once

#include "ops/schemes/hadamard.h"

namespace dodona::ops {

/// As hadamard_transform, with (20 x 20 matrix of signs) (x) (Sylvester's of n): for dimensions 20 n, n a power of two; others are padded
/// with zeros. Source: sgl-kernel `hadamard_transform_20n` (the fast-hadamard-transform project).
struct HadamardTransform20n : HadamardCall {
  static constexpr std::int64_t chunks = 20;

  static constexpr OpInfo info{"hadamard_transform_20n", Category::nsa, Source::sgl_kernel};
  void describe(auto& op) { describe_transform(op, 20480); }
};

}  // namespace dodona::ops
