// Fast mode of the Hadamard transforms whose size is a power of two: one row.
#pragma once

#include <cstdint>

#include "dodona/dtype.h"
#include "ops/base/writing.h"
#include "simd/tier.h"

namespace dodona::ops {

/// Elements of one block, which stays in registers.
inline constexpr std::int64_t hadamard_block = 128;

/// out = scale * H x of `n` elements, a power of two of at least hadamard_block; of x and out there are `width`, the other elements of x
/// are zero. Butterflies of stride 1 first, then 2, 4... `out` may be x.
struct HadamardRow {
  const void* x;
  void* out;
  std::int64_t width, n;
  float scale;
  DType type;
  Writing writing;
  float* sums;  ///< room for n; not used for a single block
};

struct HadamardRowKernel {
  template <class Tier>
  static void run(const HadamardRow& row);
};

}  // namespace dodona::ops
