// A row of softmax with a temperature in fast mode.
#pragma once

#include <cstdint>

#include "simd/tier.h"

namespace dodona::ops {

/// output = exp(x - max) / sum, x = logits * factor. What lies between is kept in `exps`, n floats; `output` may be written past the
/// caches.
struct SoftmaxRow {
  const float* logits;
  float* exps;
  float* output;
  std::int64_t n;
  float factor;
  bool streamed;
};

struct SoftmaxRowKernel {
  template <class Tier>
  static void run(const SoftmaxRow& row);
};

}  // namespace dodona::ops
