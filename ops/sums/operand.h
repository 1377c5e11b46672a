// The operands of a matrix product: codes in memory, the scales of their blocks in any layout, and a line of them decoded.
#pragma once

#include <cstdint>

#include "dodona/dtype.h"
#include "dodona/tensor.h"
#include "ops/sums/accumulator.h"
#include "quant/swizzle.h"

namespace dodona::ops {

/// One number for every `lines` x `k` numbers of an operand: 1 x 16, 1 x 32, 1 x 128, 128 x 128, or a whole line (k = K).
struct BlockScales {
  DType type = DType::f32;     ///< f32, f16, bf16, f8_e4m3, f8_e8m0, or an integer type
  const void* data = nullptr;  ///< nullptr: no scales
  std::int64_t lines = 1, k = 0;
  quant::ScaleLayout layout = quant::ScaleLayout::linear;
  std::int64_t line_stride = 0, k_stride = 0;  ///< linear: from one scale to the next, in elements, row-major or M-major
  std::int64_t columns = 0;                    ///< of tiles: scales along K
  std::int64_t first = 0;                      ///< of tiles: row of the matrix of scales that belongs to line 0

  explicit operator bool() const { return data != nullptr; }
  /// Where the scale of number `at` of line `line` lies, in elements.
  std::int64_t index(std::int64_t line, std::int64_t at) const;
  /// The scale of number `at` of line `line`.
  double at(std::int64_t line, std::int64_t at) const;
};

/// Scales in memory order [line / lines][at / k] with the strides of `scales`, a matrix [lines of scales, scales along K].
BlockScales linear_scales(const Tensor& scales, std::int64_t lines, std::int64_t k);
/// Bytes of e4m3 in tiles of 128 x 4, a scale for every 16 of `k` numbers; `first` is the row of the matrix that belongs to line 0.
BlockScales nvfp4_scales(const void* data, std::int64_t k, std::int64_t first = 0);

/// Rows of A, or columns of B: `count` lines of k codes.
struct Operand {
  DType type{};
  const void* codes = nullptr;
  std::int64_t count = 0, k = 0;
  std::int64_t stride = 0, k_stride = 1;  ///< from line to line and along it, in elements (packed types count codes)
  BlockScales scales;                     ///< that numbers are multiplied with within the sum
  BlockScales zeros;                      ///< that integers are reduced by first
};

/// A line for golden mode, in the form that the accumulator's sums take. `decoded` is empty, or holds another line of the operand.
void decode_line(const Operand& operand, std::int64_t line, const Accumulator& accumulator, Line& decoded);

}  // namespace dodona::ops
