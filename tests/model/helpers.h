// What the tests of this room share.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/random.h"
#include "dodona/error.h"
#include "dodona/tensor.h"
#include "quant/element.h"
#include "tests/errors.h"
#include "tests/temp_folder.h"

namespace dodona::model::testing {

using helpers::expect_error;
using helpers::TempFolder;

/// Normal numbers of the stream `name`.
inline Tensor drawn(std::uint64_t seed, const char* name, const Dims& shape, DType type) {
  Tensor tensor(type, shape);
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  fill_normal(Stream(seed, name), 0, values);
  quant::from_f32(type, values.data(), tensor.data(), tensor.elements());
  return tensor;
}

inline std::string bytes(const Tensor& tensor) {
  return {tensor.as<char>(), static_cast<std::size_t>(bytes_for(tensor.dtype(), tensor.elements()))};
}

}  // namespace dodona::model::testing
