// Where the block scales of FlashInfer's quantizers and products lie: in tiles of 128 x 4 or of 8 x 4, or row by row.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "dodona/tensor.h"
#include "ops/base/golden_output.h"
#include "quant/swizzle.h"

namespace dodona::ops {

inline quant::ScaleLayout scale_layout(bool swizzled, bool tiles_of_8) {
  using enum quant::ScaleLayout;
  return !swizzled ? linear : tiles_of_8 ? swizzled_8x4 : swizzled_128x4;
}

/// From four scales of a row to the next four.
inline std::int64_t tile_stride(quant::ScaleLayout layout) {
  using enum quant::ScaleLayout;
  return layout == linear ? 4 : layout == swizzled_8x4 ? 32 : 512;
}

/// Shape of a matrix of `columns` scales a row, M rows, for an op with the attributes that name the layout.
inline std::string scale_matrix(const std::string& columns) {
  return "is_sf_swizzled_layout*(is_sf_8x4_layout*align(M,8)+(1-is_sf_8x4_layout)*align(M,128))+(1-is_sf_swizzled_layout)*M "
         "is_sf_swizzled_layout*align(" +
         columns + ",4)+(1-is_sf_swizzled_layout)*(" + columns + ")";
}
/// Those attributes; `Op` has the fields.
template <class Op>
void describe_scale_layout(auto& op, Op& fields) {
  op.attr("is_sf_swizzled_layout", fields.is_sf_swizzled_layout).doc("scales lie in tiles, else row by row without padding");
  op.attr("is_sf_8x4_layout", fields.is_sf_8x4_layout).doc("tiles have 8 rows, else 128");
}

/// What the padding of scales in tiles holds: kernels leave it as it is, or write zeros for products that read whole tiles.
template <class Op>
void describe_padding(auto& op, Op& fields) {
  op.choice("padding", fields.padding, {"open", "zeros"})
      .doc("what lies between the scales of a matrix and the end of its tiles: open: anything; zeros: bytes of 0");
}
/// That in golden mode.
inline void put_padding(const GoldenOutput& scales, std::int64_t at, const Tensor& stored, bool zeros) {
  if (!zeros) return scales.leave_open(at);
  scales.put(at, {stored.dtype() == DType::f8_e8m0 ? 0x1p-127 : 0.0, 0.0});
}

/// Padding of a matrix of scales becomes 0; the rest is left to be written.
inline void clear_padding(const Tensor& scales, std::int64_t used) {
  if (scales.elements() > used) std::memset(scales.data(), 0, static_cast<std::size_t>(scales.elements()));
}

/// Calls leave_open(offset) for the padding of a matrix [rows, columns].
template <class Leave>
void for_padding(quant::ScaleLayout layout, std::int64_t row, std::int64_t rows, std::int64_t columns, const Leave& leave_open) {
  const quant::PaddedSize padded = quant::padded_size(layout, rows, columns);
  for (std::int64_t c = row < rows ? columns : 0; c < padded.columns; ++c) leave_open(quant::scale_offset(layout, row, c, columns));
}

}  // namespace dodona::ops
