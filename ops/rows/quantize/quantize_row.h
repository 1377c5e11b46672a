// Rows to fp8 in fast mode: multiplied by a scale, with or without a rotation before.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dodona/dtype.h"
#include "ops/base/writing.h"
#include "simd/tier.h"

namespace dodona::ops {

/// code = fp8(fl32(x * scale)), to nearest even, saturating. With cos_sin x is the rotated row, in fp32:
/// first*c - second*s and second*c + first*s, the product with c fused with the sum.
struct QuantizeRow {
  const std::byte* input;  ///< n elements of bf16 or f16
  std::uint8_t* codes;
  std::int64_t n;
  const float* cos_sin;  ///< nullptr: no rotation; else n/2 cosines, then n/2 sines
  DType type, code_type;
  bool neox;
  float scale;
  std::int64_t fetched = 0;           ///< what lies so many bytes on is fetched meanwhile; bf16 that is not rotated
  Writing writing = Writing::cached;  ///< likewise
};

struct QuantizeRowKernel {
  template <class Tier>
  static void run(const QuantizeRow& row);
};

}  // namespace dodona::ops
