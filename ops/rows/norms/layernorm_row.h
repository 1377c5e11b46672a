// Fast mode of layernorm: one row.
#pragma once

#include <cstdint>

#include "simd/tier.h"

namespace dodona::ops {

/// n elements of bf16 and as many factors and addends.
struct LayernormRow {
  const void* input;
  const float *gemma, *beta;
  void* out;
  std::int64_t n;
  float eps;
};

struct LayernormRowKernel {
  template <class Tier>
  static void run(const LayernormRow& row);
};

}  // namespace dodona::ops
