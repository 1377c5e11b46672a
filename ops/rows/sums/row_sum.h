// Sums of a row in fast mode.
#pragma once

#include <cstdint>

#include "dodona/dtype.h"
#include "simd/tier.h"

namespace dodona::ops {

/// In fp32: lanes of sixteen in four chains, then one tree.
struct RowSum {
  const void* input;  ///< bf16, f16 or f32
  std::int64_t n;
  DType type;
  float* result;
};
struct RowSumKernel {
  template <class Tier>
  static void run(const RowSum& row);
};

}  // namespace dodona::ops
