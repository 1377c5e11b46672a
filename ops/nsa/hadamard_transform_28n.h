#pragma once

#include "ops/schemes/hadamard.h"

namespace dodona::ops {

/// As hadamard_transform, with (28 x 28 matrix of signs) (x) (Sylvester's of n): for dimensions 28 n, n a power of two; others are padded
/// with zeros. Source: sgl-kernel `hadamard_transform_28n` (the fast-hadamard-transform project).
struct HadamardTransform28n : HadamardCall {
  static constexpr std::int64_t chunks = 28;

  static constexpr OpInfo info{"hadamard_transform_28n", Category::nsa, Source::sgl_kernel};
  void describe(auto& op) { describe_transform(op, 28672); }
};

}  // namespace dodona::ops
