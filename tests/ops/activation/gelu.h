// Inputs of the two gelu tests: a row of gates, then a row of ups.
#pragma once

#include "tests/ops/helpers.h"

namespace dodona::helpers {

/// 512 gates from `first` to `last`, up = 1.
inline Tensor ramp(DType type, double first, double last) {
  Tensor t(type, {1, 1024});
  for (std::int64_t i = 0; i < 1024; ++i) quant::set(t, i, i < 512 ? first + (last - first) * static_cast<double>(i) / 511.0 : 1.0);
  return t;
}
/// Eight gates and eight ups, all alike.
inline Tensor row_of(DType type, double gate, double up) {
  Tensor t(type, {1, 16});
  for (std::int64_t i = 0; i < 16; ++i) quant::set(t, i, i < 8 ? gate : up);
  return t;
}

}  // namespace dodona::helpers
