// Quantization to e4m3 in fast mode: a whole row, or its two halves alone.
#pragma once

#include <cstdint>

#include "dodona/dtype.h"
#include "ops/base/writing.h"
#include "simd/tier.h"

namespace dodona::ops {

struct Fp8Row {
  const void* input;  ///< bf16, f16 or f32, n elements
  std::uint8_t* codes;
  float* scale;
  std::int64_t n;
  DType type;
  bool true_division;                 ///< scale = amax / 448 rather than amax * fl32(1/448)
  const void* next;                   ///< the row that comes next, which is fetched meanwhile, or this one
  Writing writing = Writing::cached;  ///< of codes; other types than bf16 go into the caches
};

struct Fp8RowKernel {
  template <class Tier>
  static void run(const Fp8Row& row);
};

/// The largest magnitude of n elements, NaN passed over.
struct LargestMagnitude {
  const void* input;  ///< bf16, f16 or f32
  std::int64_t n;
  DType type;
  float* result;
  std::int64_t fetched = 0;  ///< what lies so many bytes on is fetched meanwhile
};
struct LargestMagnitudeKernel {
  template <class Tier>
  static void run(const LargestMagnitude& row);
};

/// e4m3(x * factor) of n elements; NaN becomes +448.
struct Fp8Codes {
  const void* input;  ///< bf16, f16 or f32
  std::uint8_t* codes;
  std::int64_t n;
  DType type;
  float factor;
  std::int64_t fetched = 0;           ///< what lies so many bytes on is fetched meanwhile
  Writing writing = Writing::cached;  ///< as in Fp8Row
};
struct Fp8CodesKernel {
  template <class Tier>
  static void run(const Fp8Codes& row);
};

}  // namespace dodona::ops
