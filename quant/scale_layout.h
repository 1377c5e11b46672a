// Layouts of block-FP8 scales: one scale per row and group of 128 along K, logical [rows, groups].
#pragma once

#include <cstdint>
#include <span>

#include "quant/sizes.h"

namespace dodona::quant {

enum class ActivationScaleLayout {
  row_major,             ///< contiguous [rows, groups]
  column_major,          ///< a buffer [groups, rows], transposed
  column_major_aligned,  ///< a buffer [groups, align(rows, 4)], transposed and cut to `rows`: as TMA wants fp32 scales
  trtllm,                ///< contiguous [groups, rows] ("[hidden/128, tokens]")
};

/// Where scale (row, group) lies: row * row_stride + group * group_stride, in elements; the buffer has `elements`.
struct ScaleStrides {
  std::int64_t row_stride, group_stride, elements;
};

[[gnu::always_inline]] constexpr ScaleStrides activation_scale_strides(ActivationScaleLayout layout, std::int64_t rows,
                                                                       std::int64_t groups) {
  switch (layout) {
    case ActivationScaleLayout::row_major: return {groups, 1, rows * groups};
    case ActivationScaleLayout::column_major_aligned: return {1, align(rows, 4), align(rows, 4) * groups};
    default: return {1, rows, rows * groups};
  }
}

/// Packed, TMA-aligned UE8M0 scales: a 32-bit word holds four groups of a row, words of one column are contiguous; an int32 tensor
/// [rows, align(groups, 4)/4] with strides (1, align(rows, 4)).
/// Source: DeepGEMM `get_mn_major_tma_aligned_packed_ue8m0_tensor`.
struct PackedUe8m0Layout {
  std::int64_t rows, groups;

  [[gnu::always_inline]] constexpr std::int64_t columns() const { return ceil_div(groups, 4); }
  [[gnu::always_inline]] constexpr std::int64_t column_stride() const { return align(rows, 4); }
  /// 32-bit words of the buffer, the padding rows included.
  [[gnu::always_inline]] constexpr std::int64_t words() const { return columns() * column_stride(); }
  [[gnu::always_inline]] constexpr std::int64_t byte_offset(std::int64_t row, std::int64_t group) const {
    return (group / 4 * column_stride() + row) * 4 + group % 4;
  }
};

/// Bytes [rows, groups] row-major to `packed` (words() * 4 bytes, little-endian words); unused bytes become 0.
/// Throws bad_shape if a size does not fit.
void pack_ue8m0(std::span<const std::uint8_t> bytes, PackedUe8m0Layout layout, std::span<std::uint8_t> packed);
void unpack_ue8m0(std::span<const std::uint8_t> packed, PackedUe8m0Layout layout, std::span<std::uint8_t> bytes);
/// Weight scales [ceil(rows/128), groups], row-major, positive powers of two, replicated to one row per output channel and packed as above.
/// Throws bad_value if a scale is not a positive power of two.
/// Source: sglang `transform_scale_ue8m0`.
void pack_weight_ue8m0(std::span<const float> scales, PackedUe8m0Layout layout, std::span<std::uint8_t> packed);

}  // namespace dodona::quant
