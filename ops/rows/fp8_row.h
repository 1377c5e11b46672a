// One row of e4m3 quantization in fast mode.
#pragma once

#include <cstdint>

#include "dodona/dtype.h"
#include "simd/tier.h"

namespace dodona::ops {

struct Fp8Row {
  const void* input;  ///< bf16, f16 or f32, n elements
  std::uint8_t* codes;
  float* scale;
  std::int64_t n;
  DType type;
  bool true_division;  ///< scale = amax / 448 rather than amax * fl32(1/448)
};

struct Fp8RowKernel {
  template <class Tier>
  static void run(const Fp8Row& row);
};

}  // namespace dodona::ops
