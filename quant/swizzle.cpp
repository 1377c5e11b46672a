#include "quant/swizzle.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace dodona::quant {

namespace {

template <class T>
void require_sizes(ScaleLayout layout, std::span<const T> linear, std::int64_t rows, std::int64_t columns, std::span<const T> swizzled) {
  require_size("linear", linear.size(), area(rows, columns));
  require_size("swizzled", swizzled.size(), padded_size(layout, rows, columns).elements());
}

/// Four columns from a multiple of four on lie next to each other in every layout. visit(in layout, in linear, how many): most are four, a
/// constant.
template <class Visit>
void for_each_run(ScaleLayout layout, std::int64_t rows, std::int64_t columns, const Visit& visit) {
  constexpr std::integral_constant<std::int64_t, 4> run;
  const std::int64_t tiled = layout == ScaleLayout::swizzled_128x4 ? rows / 128 * 128 : 0;
  // In whole tiles by what is neighbours there: four rows that are 32 apart.
  for (std::int64_t r = 0; r < tiled; r += r % 32 == 31 ? 97 : 1)
    for (std::int64_t c = 0; c + run <= columns; c += run) {
      const std::int64_t first = scale_offset(ScaleLayout::swizzled_128x4, r, c, columns);
      for (std::int64_t i = 0; i < 4; ++i) visit(first + 4 * i, (r + 32 * i) * columns + c, run);
    }
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t c = r < tiled ? columns / run * run : 0;
    for (; c + run <= columns; c += run) visit(scale_offset(layout, r, c, columns), r * columns + c, run);
    if (c < columns) visit(scale_offset(layout, r, c, columns), r * columns + c, columns - c);
  }
}

template <class T, class Count>
void copy_run(const T* from, Count count, T* to) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
}

template <class T>
void swizzle(ScaleLayout layout, std::span<const T> linear, std::int64_t rows, std::int64_t columns, std::span<T> swizzled) {
  require_sizes<T>(layout, linear, rows, columns, swizzled);
  if (swizzled.size() != linear.size()) std::fill(swizzled.begin(), swizzled.end(), T{0});
  for_each_run(layout, rows, columns, [&](std::int64_t in_layout, std::int64_t in_linear, auto count) {
    copy_run(linear.data() + in_linear, count, swizzled.data() + in_layout);
  });
}

template <class T>
void unswizzle(ScaleLayout layout, std::span<const T> swizzled, std::int64_t rows, std::int64_t columns, std::span<T> linear) {
  require_sizes<T>(layout, linear, rows, columns, swizzled);
  for_each_run(layout, rows, columns, [&](std::int64_t in_layout, std::int64_t in_linear, auto count) {
    copy_run(swizzled.data() + in_layout, count, linear.data() + in_linear);
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
