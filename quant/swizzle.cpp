#include "quant/swizzle.h"

#include <algorithm>

namespace dodona::quant {

namespace {

template <class T>
void require_sizes(ScaleLayout layout, std::span<const T> linear, std::int64_t rows, std::int64_t columns, std::span<const T> swizzled) {
  require_size("linear", linear.size(), area(rows, columns));
  require_size("swizzled", swizzled.size(), padded_size(layout, rows, columns).elements());
}

/// Four columns from a multiple of four on lie next to each other in every layout.
template <class Visit>
void for_each_run(ScaleLayout layout, std::int64_t rows, std::int64_t columns, const Visit& visit) {
  constexpr std::int64_t run = 4;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t c = 0;
    for (; c + run <= columns; c += run) visit(scale_offset(layout, r, c, columns), r * columns + c, run);
    if (c < columns) visit(scale_offset(layout, r, c, columns), r * columns + c, columns - c);
  }
}

template <class T>
void swizzle(ScaleLayout layout, std::span<const T> linear, std::int64_t rows, std::int64_t columns, std::span<T> swizzled) {
  require_sizes<T>(layout, linear, rows, columns, swizzled);
  if (swizzled.size() != linear.size()) std::fill(swizzled.begin(), swizzled.end(), T{0});
  for_each_run(layout, rows, columns, [&](std::int64_t in_layout, std::int64_t in_linear, std::int64_t count) {
    std::copy_n(linear.begin() + in_linear, count, swizzled.begin() + in_layout);
  });
}

template <class T>
void unswizzle(ScaleLayout layout, std::span<const T> swizzled, std::int64_t rows, std::int64_t columns, std::span<T> linear) {
  require_sizes<T>(layout, linear, rows, columns, swizzled);
  for_each_run(layout, rows, columns, [&](std::int64_t in_layout, std::int64_t in_linear, std::int64_t count) {
    std::copy_n(swizzled.begin() + in_layout, count, linear.begin() + in_linear);
  });
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
