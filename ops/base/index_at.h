// Lists of slots, rows and offsets, of either width.
#pragma once

#include <cstdint>

#include "dodona/tensor.h"

namespace dodona::ops {

/// Number i of a list of i32 or i64, at any stride.
inline std::int64_t index_at(const Tensor& list, std::int64_t i) {
  const std::int64_t at = i * list.stride(0);
  return list.dtype() == DType::i64 ? list.as<const std::int64_t>()[at] : list.as<const std::int32_t>()[at];
}
inline void put_index(const Tensor& list, std::int64_t i, std::int64_t value) {
  const std::int64_t at = i * list.stride(0);
  if (list.dtype() == DType::i64) {
    list.as<std::int64_t>()[at] = value;
  } else {
    list.as<std::int32_t>()[at] = static_cast<std::int32_t>(value);
  }
}

}  // namespace dodona::ops
