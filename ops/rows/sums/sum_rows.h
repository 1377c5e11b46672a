// Sums of rows in fast mode: one output row.
#pragma once

#include <cstdint>

#include "dodona/dtype.h"
#include "dodona/tensor.h"
#include "ops/base/writing.h"
#include "simd/tier.h"

namespace dodona::ops {

/// output = scale * sum of `count` rows of `type`: in order, from `start`, in fp32 (by fma where they have factors), rounded once.
/// Rows of `first`, which have no factors, are added before them.
struct SumRows {
  const void* input;
  std::int64_t row_bytes;           ///< from row to row of the input
  const std::int32_t* permutation;  ///< which rows; nullptr for the first ones
  const float* factors;             ///< of the rows, widened; nullptr for none
  float scale;
  void* output;
  std::int64_t count, n;
  DType type;
  Writing writing;
  bool rounded_between = false;  ///< each sum is rounded to the type, once where there are factors, which are then of the type too
  float start = 0.0f;            ///< zero; -0 leaves a sum of -0 what it is, as sums do that begin with their first term
  const void* first[2] = {};
  std::int64_t first_count = 0;
  bool more = false;  ///< `count` rows, and as many of the permutation, lie behind these: they are asked for towards the end
};
/// Whether what belongs to row t + 1 of [rows, count, n] lies right behind what belongs to row t.
inline bool rows_follow(const Tensor& input, std::int64_t t) {
  return t + 1 < input.size(0) && input.stride(0) == input.size(1) * input.stride(1);
}
struct SumRowsKernel {
  template <class Tier>
  static void run(const SumRows& row);
};

}  // namespace dodona::ops
