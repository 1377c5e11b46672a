// Row access for ops that work on [rows, columns] whatever the leading dimensions are.
#pragma once

#include <cstdint>

#include "dodona/tensor.h"

namespace dodona::ops {

/// Rows of a tensor whose last dimension is the row: the product of the other sizes (1 for rank 1).
inline std::int64_t row_count(const Tensor& t) {
  std::int64_t rows = 1;
  for (int d = 0; d + 1 < t.rank(); ++d) rows *= t.shape()[d];
  return rows;
}

/// Offset in elements of the first element of row `row`.
inline std::int64_t row_offset(const Tensor& t, std::int64_t row) {
  if (t.rank() == 2) return row * t.strides()[0];
  std::int64_t offset = 0;
  for (int d = t.rank() - 2; d >= 0; --d) {
    offset += row % t.shape()[d] * t.strides()[d];
    row /= t.shape()[d];
  }
  return offset;
}

/// Address of the first element of row `row`; element types of at least one byte.
inline const std::byte* row_begin(const Tensor& t, std::int64_t row, int element_bytes) {
  return static_cast<const std::byte*>(t.data()) + row_offset(t, row) * element_bytes;
}
/// That of the row that comes next, or of this one where it is the last.
inline const std::byte* next_row_begin(const Tensor& t, std::int64_t row, int element_bytes) {
  return row_begin(t, row + 1 < row_count(t) ? row + 1 : row, element_bytes);
}
inline std::byte* row_begin_mutable(const Tensor& t, std::int64_t row, int element_bytes) {
  return static_cast<std::byte*>(t.data()) + row_offset(t, row) * element_bytes;
}

}  // namespace dodona::ops
