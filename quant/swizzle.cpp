#include "quant/swizzle.h"

#include <algorithm>

namespace dodona::quant {

namespace {

template <class T>
void require_sizes(ScaleLayout layout, std::span<const T> linear, std::int64_t rows, std::int64_t columns, std::span<const T> swizzled) {
  require_size("linear", linear.size(), area(rows, columns));
  require_size("swizzled", swizzled.size(), padded_size(layout, rows, columns).elements());
}

template <class T>
void swizzle(ScaleLayout layout, std::span<const T> linear, std::int64_t rows, std::int64_t columns, std::span<T> swizzled) {
  require_sizes<T>(layout, linear, rows, columns, swizzled);
  std::fill(swizzled.begin(), swizzled.end(), T{0});
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c)
      swizzled[static_cast<std::size_t>(scale_offset(layout, r, c, columns))] = linear[static_cast<std::size_t>(r * columns + c)];
  }
}

template <class T>
void unswizzle(ScaleLayout layout, std::span<const T> swizzled, std::int64_t rows, std::int64_t columns, std::span<T> linear) {
  require_sizes<T>(layout, linear, rows, columns, swizzled);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c)
      linear[static_cast<std::size_t>(r * columns + c)] = swizzled[static_cast<std::size_t>(scale_offset(layout, r, c, columns))];
  }
}

}  // namespace

void swizzle_scales(ScaleLayout layout, std::span<const std::uint8_t> linear, std::int64_t rows, std::int64_t columns,
                    std::span<std::uint8_t> swizzled) {
  swizzle(layout, linear, rows, columns, swizzled);
}

void swizzle_scales(ScaleLayout layout, std::span<const std::uint16_t> linear, std::int64_t rows, std::int64_t columns,
                    std::span<std::uint16_t> swizzled) {
  swizzle(layout, linear, rows, columns, swizzled);
}

void unswizzle_scales(ScaleLayout layout, std::span<const std::uint8_t> swizzled, std::int64_t rows, std::int64_t columns,
                      std::span<std::uint8_t> linear) {
  unswizzle(layout, swizzled, rows, columns, linear);
}

void unswizzle_scales(ScaleLayout layout, std::span<const std::uint16_t> swizzled, std::int64_t rows, std::int64_t columns,
                      std::span<std::uint16_t> linear) {
  unswizzle(layout, swizzled, rows, columns, linear);
}

}  // namespace dodona::quant
