// Fast mode of awq_dequantize: one row.
#pragma once

#include <cstdint>

#include "dodona/dtype.h"
#include "simd/tier.h"

namespace dodona::ops {

struct AwqRow {
  const std::int32_t *codes, *zeros;  ///< words of eight codes, those of the row and those of its group
  const void* scales;                 ///< of the group: bf16 or f16, as the output
  void* out;
  std::int64_t n;  ///< columns, a multiple of 8
  DType type;
};

/// out = (code - zero) * scale, rounded once: the difference and the product are exact in fp32.
struct AwqRowKernel {
  template <class Tier>
  static void run(const AwqRow& row);
};

}  // namespace dodona::ops
