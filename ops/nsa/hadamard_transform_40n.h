#pragma once

#include "ops/schemes/hadamard.h"

namespace dodona::ops {

/// As hadamard_transform, with (40 x 40 matrix of signs) (x) (Sylvester's of n): for dimensions 40 n, n a power of two; others are padded
/// with zeros. Source: sgl-kernel `hadamard_transform_40n` (the fast-hadamard-transform project).
struct HadamardTransform40n : HadamardCall {
  static constexpr std::int64_t chunks = 40;

  static constexpr OpInfo info{"hadamard_transform_40n", Category::nsa, Source::sgl_kernel};
  void describe(auto& op) { describe_transform(op, 40960); }
};

}  // namespace dodona::ops
