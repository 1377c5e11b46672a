// What becomes of a product's sum before it is stored: steps in the order of the contract, each rounded to fp32, then the output's type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dodona/dtype.h"

namespace dodona::ops {

/// value = fl32(value * f), fl32(value + f) or fl32(value - f), f = values[row * row_stride + column * column_stride]: one number for all
/// (both strides 0), one for each row (1, 0) or column (0, 1), a bias (0, 1), another matrix (its stride, 1). With `by` f = fl32(that *
/// by's).
struct EpilogueStep {
  enum class Kind { times, plus, minus };
  Kind kind = Kind::times;
  const float* values = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;  ///< 0 or 1
  const float* by = nullptr;
  std::int64_t by_row_stride = 0, by_column_stride = 0;
  bool fused = false;  ///< plus and minus: one rounding for the product of the step before and this
};

struct TileEpilogue {
  static constexpr int most_steps = 4;
  EpilogueStep steps[most_steps] = {};
  int count = 0;
  DType out_type = DType::f32;  ///< bf16, f16 or f32
  std::byte* out = nullptr;     ///< of row 0 and column 0
  std::int64_t out_stride = 0;  ///< elements from row to row
};

}  // namespace dodona::ops
