// Sizes of whole-matrix functions: rounding up, and the one check they all make of their spans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dodona::quant {

[[gnu::always_inline]] constexpr std::int64_t ceil_div(std::int64_t x, std::int64_t y) {
  return (x + y - 1) / y;
}

/// `x` rounded up to a multiple of `y`.
[[gnu::always_inline]] constexpr std::int64_t align(std::int64_t x, std::int64_t y) {
  return ceil_div(x, y) * y;
}

/// rows * columns. Throws bad_shape if one is negative, or if one or the product is beyond 2^55: no memory is that large, and below it no
/// padded size overflows.
std::int64_t area(std::int64_t rows, std::int64_t columns);
/// Throws bad_shape naming `what` unless `got` elements are `expected` ones.
void require_size(std::string_view what, std::size_t got, std::int64_t expected);
/// Throws bad_shape naming `what` unless `size` is non-negative and a multiple of `divisor`.
void require_multiple(std::string_view what, std::int64_t size, std::int64_t divisor);
/// Throws bad_value naming `what` if `index` is outside [0, count).
void require_index(std::string_view what, std::int64_t index, std::int64_t count);

}  // namespace dodona::quant
