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
#include "tests/temp_folder.h"

namespace dodona::model::testing {

using helpers::TempFolder;

/// `action` must throw an Error of that code whose text contains every part.
inline void expect_error(const std::function<void()>& action, ErrorCode code, const std::vector<std::string>& parts) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_STREQ(to_string(error.code()), to_string(code)) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << "in \"" << error.what() << "\" there is no \"" << part << "\"";
    return;
  }
  ADD_FAILURE() << "no error; expected one with \"" << parts.front() << "\"";
}

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
