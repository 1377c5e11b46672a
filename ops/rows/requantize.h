// Rows that a kernel quantizes between two products: codes and scales, and in golden mode how far the numbers that honest implementations
// multiply may lie from these.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/base/bounded.h"

namespace dodona::ops {

/// What becomes of a row.
enum class Requantizer : std::uint8_t {
  none,        ///< fp32 stays
  bf16,        ///< rounded
  fp8_groups,  ///< e4m3 of each 128: s = max(fl32(amax / 448), 2^-126) in f32, code = e4m3(x / s)
  fp8,         ///< e4m3, saturating, without a scale
  nvfp4,       ///< e2m1 of each 16: s = e4m3(amax / 6), code = e2m1(x / s), 0 where s is 0
};

/// Numbers that share a scale; 0 where there is none.
std::int64_t group_of(Requantizer requantizer);
/// Of a code, and of a scale (f32 where there is none).
DType code_type(Requantizer requantizer);
DType scale_type(Requantizer requantizer);

/// A quantized row of n numbers; each pointer may be null.
struct RequantizedRow {
  void* codes = nullptr;     ///< nvfp4: two a byte
  void* scales = nullptr;    ///< n / group_of numbers
  double* values = nullptr;  ///< codes times scales
  double* open = nullptr;    ///< how far such a number of an honest implementation may lie from `values`; infinite where nothing is known
};

/// From numbers that are open. Divisions are within 2 ulp (4 units of 2^-24), or products with a reciprocal.
void requantize(Requantizer requantizer, std::span<const Bounded> x, const RequantizedRow& row);
/// The same codes and scales, of numbers that are what they are.
void requantize(Requantizer requantizer, std::span<const float> x, const RequantizedRow& row);

}  // namespace dodona::ops
