#include "quant/sizes.h"

#include <string>

#include "dodona/error.h"

namespace dodona::quant {

std::int64_t area(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t limit = std::int64_t{1} << 55;
  const bool in_range = rows >= 0 && columns >= 0 && rows <= limit && columns <= limit;
  if (in_range && (rows == 0 || columns <= limit / rows)) return rows * columns;
  throw Error(ErrorCode::bad_shape, "", "", "a matrix of " + std::to_string(rows) + " x " + std::to_string(columns) + " cannot be");
}

void require_size(std::string_view what, std::size_t got, std::int64_t expected) {
  if (expected >= 0 && got == static_cast<std::size_t>(expected)) return;
  throw Error(ErrorCode::bad_shape, "", std::string(what),
              "has " + std::to_string(got) + " elements, expected " + std::to_string(expected));
}

void require_multiple(std::string_view what, std::int64_t size, std::int64_t divisor) {
  if (size >= 0 && size % divisor == 0) return;
  throw Error(ErrorCode::bad_shape, "", std::string(what),
              "is " + std::to_string(size) + ", expected a non-negative multiple of " + std::to_string(divisor));
}

void require_index(std::string_view what, std::int64_t index, std::int64_t count) {
  if (index >= 0 && index < count) return;
  throw Error(ErrorCode::bad_value, "", std::string(what), "is " + std::to_string(index) + ", expected 0.." + std::to_string(count - 1));
}

}  // namespace dodona::quant
