// One row of NVFP4 or MXFP4 quantization in fast mode.
#pragma once

#include <cstdint>

#include "dodona/dtype.h"
#include "simd/tier.h"

namespace dodona::ops {

struct Fp4Row {
  const void* input;     ///< bf16 or f16, 16 * blocks elements
  std::uint8_t* codes;   ///< 8 bytes a block
  std::uint8_t* scales;  ///< where the row begins in their matrix: blocks 4i..4i+3 at tile * i
  std::int64_t tile = 512;
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

/// Scales of blocks that are the least powers of two not below largest magnitude * part, as bytes of e8m0, and their inverses: up to 2^-127
/// 0 and 0, above 2^127 254 and 2^-127, NaN 255 and NaN.
struct PowerScales {
  const float* maxima;
  std::int64_t blocks;
  float part;
  std::uint8_t* scales;  ///< where the row begins in their matrix: blocks 4i..4i+3 at tile * i
  std::int64_t tile;
  float* factors;
};
/// Whether a largest magnitude is 0.
struct PowerScalesKernel {
  template <class Tier>
  static bool run(const PowerScales& row);
};

/// Codes of x * factor: e2m1, NaN becoming +6. Fast where factors are powers of two.
struct Fp4CodesRow {
  const void* input;     ///< bf16 or f16, 16 * blocks elements; blocks are even
  std::uint8_t* codes;   ///< 8 bytes a block
  const float* factors;  ///< one for each two blocks
  std::int64_t blocks;
  DType type;
  const void* next = nullptr;  ///< the row that comes next, which is fetched while codes are made; nullptr: none is
};
struct Fp4CodesKernel {
  template <class Tier>
  static void run(const Fp4CodesRow& row);
};

}  // namespace dodona::ops
