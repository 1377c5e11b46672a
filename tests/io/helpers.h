// What the tests of this room share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dodona/error.h"
#include "dodona/tensor.h"
#include "io/bytes.h"
#include "tests/errors.h"
#include "tests/temp_folder.h"

namespace dodona::io::testing {

using Buffer = std::vector<std::byte>;

using helpers::expect_error;
using helpers::read_raw;
using helpers::TempFolder;

inline Buffer buffer(std::string_view text) {
  return {as_bytes(text).begin(), as_bytes(text).end()};
}

inline void write_raw(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

/// Whatever the input: `action` returns or throws an Error. Any other exception fails the test, and memory errors are the sanitizers'
/// business.
inline bool survives(const std::function<void()>& action) {
  try {
    action();
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// One random change, or several: bits, bytes that mean something, numbers in the text, pieces cut out or repeated.
inline Buffer mutate(const Buffer& original, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return n == 0 ? std::size_t{0} : static_cast<std::size_t>(random() % n); };
  constexpr char telling[] = "\0\xff\x7f\x80{}[]()\",:0-9e'\\";
  Buffer bytes = original;
  for (std::size_t changes = 1 + below(4); changes > 0 && !bytes.empty(); --changes) {
    const std::size_t at = below(bytes.size());
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t length = 1 + below(std::min<std::size_t>(bytes.size() - at, 16));
    switch (below(6)) {
      case 0: bytes[at] ^= static_cast<std::byte>(1 << below(8)); break;
      case 1: bytes[at] = static_cast<std::byte>(telling[below(sizeof(telling) - 1)]); break;
      case 2: bytes[at] = static_cast<std::byte>('0' + below(10)); break;
      case 3: bytes.erase(place, place + static_cast<std::ptrdiff_t>(length)); break;
      case 4: {
        const Buffer piece(place, place + static_cast<std::ptrdiff_t>(length));
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(below(bytes.size())), piece.begin(), piece.end());
        break;
      }
      default: bytes[at] = static_cast<std::byte>(below(256)); break;
    }
  }
  return bytes;
}

/// 0, 1, 2, ... as the raw bytes of a tensor (booleans: 0 and 1 in turn).
inline Tensor counting(DType dtype, const Dims& shape) {
  Tensor tensor(dtype, shape);
  const auto size = static_cast<std::size_t>(bytes_for(dtype, tensor.elements()));
  for (std::size_t i = 0; i < size; ++i) tensor.as<std::byte>()[i] = static_cast<std::byte>(dtype == DType::boolean ? i % 2 : i);
  return tensor;
}

inline Buffer values(const Tensor& tensor) {
  const Tensor dense = tensor.clone();
  const auto* data = dense.as<std::byte>();
  return {data, data + bytes_for(dense.dtype(), dense.elements())};
}

inline void expect_same(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(name(a.dtype()), name(b.dtype()));
  EXPECT_EQ(to_string(a.shape()), to_string(b.shape()));
  EXPECT_EQ(values(a), values(b));
}

}  // namespace dodona::io::testing
