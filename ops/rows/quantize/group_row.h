// Quantization by groups in fast mode: the largest magnitudes of a row's groups, and its codes given a factor for each.
#pragma once

#include <cstdint>

#include "dodona/dtype.h"
#include "ops/base/writing.h"
#include "simd/tier.h"

namespace dodona::ops {

/// A row of `groups` * `size` elements of bf16, f16 or f32.
struct GroupRow {
  const void* input;
  std::int64_t groups, size;
  DType type;
  const void* next = nullptr;         ///< the row that comes next, which is fetched while codes are made; nullptr: none is
  Writing writing = Writing::cached;  ///< of codes; other types than bf16 go into the caches
};

/// NaN passed over.
struct GroupMaximaKernel {
  template <class Tier>
  static void run(const GroupRow& row, float* maxima);
};

enum class GroupCode {
  e4m3,          ///< NaN becomes -448
  i8_cut,        ///< clamped to -128 and 127 and cut toward zero; NaN becomes -128
  i8_half_away,  ///< to the nearest whole number, half away from zero, clamped; NaN becomes 0
};

/// Codes of x * factor.
struct GroupCodesKernel {
  template <class Tier>
  static void run(const GroupRow& row, const float* factors, GroupCode code, std::uint8_t* codes);
};

/// A row of f32 that becomes codes of each group's x / by, or x * by, and what they stand for. NaN becomes 0x7F, of e2m1 7.
struct ScaledCodes {
  const float* x;
  std::int64_t groups, size;
  const float* by;
  bool divides;         ///< x / by, zeros where that is 0
  bool fp4 = false;     ///< e2m1, two a byte; e4m3 otherwise
  std::uint8_t* codes;  ///< of a group: size or size / 2 bytes
  const float* scales = nullptr;
  float* values = nullptr;  ///< e4m3: codes times scales; nullptr: not asked for
};
struct ScaledCodesKernel {
  template <class Tier>
  static void run(const ScaledCodes& row);
};

}  // namespace dodona::ops
