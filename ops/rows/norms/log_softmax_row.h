// A row of log_softmax in fast mode.
#pragma once

#include <cstdint>

#include "dodona/dtype.h"
#include "simd/tier.h"

namespace dodona::ops {

/// output = (input - max) - log(sum of exp(input - max)); n elements of bf16, f16 or f32; NaN is passed over by the maximum alone.
struct LogSoftmaxRow {
  const void* input;
  void* output;
  std::int64_t n;
  DType type;
  const void* next;  ///< the row that comes next, which is fetched meanwhile, or this one
  bool streamed;     ///< the output may be written past the caches
};
struct LogSoftmaxRowKernel {
  template <class Tier>
  static void run(const LogSoftmaxRow& row);
};

}  // namespace dodona::ops
