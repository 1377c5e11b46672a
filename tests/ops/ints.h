// Tensors of whole numbers, as tests of ops write them down.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dodona/tensor.h"

namespace dodona::helpers {

inline Tensor ints(const Dims& shape, const std::vector<std::int32_t>& values) {
  const Tensor t(DType::i32, shape);
  std::copy(values.begin(), values.end(), t.as<std::int32_t>());
  return t;
}
inline Tensor ints(const std::vector<std::int32_t>& values) {
  return ints({static_cast<std::int64_t>(values.size())}, values);
}

}  // namespace dodona::helpers
