// What rmsnorm and fused_add_rmsnorm share in fast mode: one row.
#pragma once

#include <cstdint>

#include "dodona/dtype.h"
#include "ops/base/writing.h"
#include "simd/tier.h"

namespace dodona::ops {

/// One row; input, addend, weight and outputs have inner stride 1 and the same element type (bf16, f16 or f32).
struct RmsRow {
  const void* input;
  const void* addend;  ///< nullptr: x is the input; else x = input + addend, in fp32
  const void* weight;
  void* output;             ///< may be `input`
  void* sum_output;         ///< with an addend: where x, rounded to the type, goes; may be `addend`
  const void* next_input;   ///< the row after this one, fetched meanwhile; any readable row will do
  const void* next_addend;  ///< its addend
  std::int64_t n;
  DType type;
  float eps;
  float weight_bias = 0.0f;  ///< added to every weight
  Writing writing;
  bool sum_rounded;     ///< x is rounded to the type before it is squared and normalised
  bool weight_rounded;  ///< x * factor is rounded to the type before the weight
};

/// The squares are summed in 128 chains of fma (eight vectors of 16 lanes, element i in chain i mod 128), then a tree.
struct RmsRowKernel {
  template <class Tier>
  static void run(const RmsRow& row);
};

}  // namespace dodona::ops
