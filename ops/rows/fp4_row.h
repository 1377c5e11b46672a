// One row of NVFP4 quantization in fast mode.
#pragma once

#include <cstdint>

#include "dodona/dtype.h"
#include "simd/tier.h"

namespace dodona::ops {

struct Fp4Row {
  const void* input;     ///< bf16 or f16, 16 * blocks elements
  std::uint8_t* codes;   ///< 8 bytes a block
  std::uint8_t* scales;  ///< where the row begins in the swizzled matrix: blocks 4i..4i+3 at 512 * i
  std::int64_t blocks;
  DType type;
  float encode_scale;
  bool zero_by_amax;  ///< codes become zero when all elements are, rather than when the scale is
};

/// Sixteen blocks at a time: their scales are the lanes of one vector.
struct Fp4RowKernel {
  template <class Tier>
  static void run(const Fp4Row& row);
};

}  // namespace dodona::ops
