// Layouts of block-scale matrices [rows, columns] (columns = K/16 or K/32) as FP4 and MX matrix products read them.
#pragma once

#include <cstdint>
#include <span>

#include "quant/sizes.h"

namespace dodona::quant {

enum class ScaleLayout {
  linear,          ///< row-major, no padding
  swizzled_128x4,  ///< tiles of 128 rows x 4 columns, in a tile row r at (r%32)*16 + (r/32)*4; rows pad to 128, columns to 4
  swizzled_8x4,    ///< tiles of 8 x 4, row-major inside; rows pad to 8, columns to 4
  r8c16,           ///< tiles of 8 x 16, row-major inside; rows pad to 8, columns to 16
};

struct PaddedSize {
  std::int64_t rows, columns;
  [[gnu::always_inline]] constexpr std::int64_t elements() const { return rows * columns; }
};

[[gnu::always_inline]] constexpr PaddedSize padded_size(ScaleLayout layout, std::int64_t rows, std::int64_t columns) {
  switch (layout) {
    case ScaleLayout::swizzled_128x4: return {align(rows, 128), align(columns, 4)};
    case ScaleLayout::swizzled_8x4: return {align(rows, 8), align(columns, 4)};
    case ScaleLayout::r8c16: return {align(rows, 8), align(columns, 16)};
    default: return {rows, columns};
  }
}

/// Offset of element (r, c) of a matrix with `columns` columns; (r, c) may lie in the padding.
/// Source: TensorRT-LLM `get_sf_out_offset_128x4`, `get_sf_out_offset_8x4`.
[[gnu::always_inline]] constexpr std::int64_t scale_offset(ScaleLayout layout, std::int64_t r, std::int64_t c, std::int64_t columns) {
  switch (layout) {
    case ScaleLayout::swizzled_128x4: return (r / 128 * ceil_div(columns, 4) + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4;
    case ScaleLayout::swizzled_8x4: return (r / 8 * ceil_div(columns, 4) + c / 4) * 32 + r % 8 * 4 + c % 4;
    case ScaleLayout::r8c16: return (r / 8 * ceil_div(columns, 16) + c / 16) * 128 + r % 8 * 16 + c % 16;
    default: return r * columns + c;
  }
}

/// linear [rows, columns] to `layout`; padding becomes 0. Throws bad_shape if a size does not fit.
/// Source: FlashInfer `nvfp4_block_scale_interleave` (bytes, or 16-bit elements).
void swizzle_scales(ScaleLayout layout, std::span<const std::uint8_t> linear, std::int64_t rows, std::int64_t columns,
                    std::span<std::uint8_t> swizzled);
void swizzle_scales(ScaleLayout layout, std::span<const std::uint16_t> linear, std::int64_t rows, std::int64_t columns,
                    std::span<std::uint16_t> swizzled);
/// Back to linear [rows, columns]; padding is not read.
void unswizzle_scales(ScaleLayout layout, std::span<const std::uint8_t> swizzled, std::int64_t rows, std::int64_t columns,
                      std::span<std::uint8_t> linear);
void unswizzle_scales(ScaleLayout layout, std::span<const std::uint16_t> swizzled, std::int64_t rows, std::int64_t columns,
                      std::span<std::uint16_t> linear);

}  // namespace dodona::quant
