// Rows whose numbers change their type in fast mode, by vectors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dodona/dtype.h"
#include "simd/tier.h"

namespace dodona::ops {

/// to[i] = the nearest of fl32(from[i] * factor), to even; infinity beyond the type's numbers.
struct ConvertRow {
  const std::byte* from;
  std::byte* to;
  std::int64_t n;
  DType from_type;  ///< f8_e4m3, f8_e5m2, bf16, f16 or f32
  DType to_type;    ///< bf16, f16 or f32
  float factor = 1.0f;
};
/// Returns whether all that was written are numbers or infinities: which NaN comes of a NaN is its caller's business.
struct ConvertRowKernel {
  template <class Tier>
  static bool run(const ConvertRow& row);
};

}  // namespace dodona::ops
