// The vector code under mma_fp4.h: codes of e2m1 decoded, and steps of 64 of their products for blocks of sums.
#pragma once

#include <cstdint>

#include "quant/tensor_core/decode.h"
#include "simd/tier.h"

namespace dodona::ops {

/// Columns of a panel.
using quant::tensor_core::mma_lanes;
/// A step is four groups of sixteen products, which share their scales.
inline constexpr std::int64_t fp4_products = 64, fp4_group = 16, fp4_groups = 4;
/// Numbers are held doubled, those of columns plus this, which makes them unsigned bytes.
inline constexpr int fp4_offset = 12;
/// Of a scale that is NaN, as an exponent.
inline constexpr std::int32_t fp4_nan_exponent = 1 << 14;

/// Lines of codes, and where they go. Numbers of a group are in an order of their own, the same for rows and columns.
///
/// A group of a row and one of a column count if the bits that stand for them have one in common: a bit for each number that is not zero,
/// none if the scale is; one that all rows and columns with a NaN scale have, and one of all columns and rows with a NaN scale.
struct Fp4Decode {
  const std::uint8_t* codes;
  std::int64_t stride;         ///< bytes from line to line
  std::int64_t lines, k;       ///< k: a multiple of 16
  std::int64_t steps;          ///< room for so many; behind k zeros
  const std::uint8_t* scales;  ///< codes of groups, [lines][steps][4]
  bool e8m0;                   ///< or e4m3, of which the sign is not read
  std::uint8_t* numbers;       ///< rows: signed bytes, [lines][steps][64]. A panel, of at most mma_lanes lines: [steps][16][mma_lanes][4]
  std::int32_t* corrections;   ///< rows: what the columns' offset adds to a group's sum, negated, [lines][steps][4]
  std::int32_t* counting;      ///< rows: [lines][steps][4]. A panel: [steps][4][mma_lanes]
  std::int32_t* exponents;     ///< of scales, likewise
  float* significands;         ///< of scales, likewise: of columns in units of 1/8, of rows such that products with a group's sum come out
};

struct Fp4RowsKernel {
  template <class Tier>
  static void run(const Fp4Decode& rows);
};
/// Lanes without a line hold zeros.
struct Fp4PanelKernel {
  template <class Tier>
  static void run(const Fp4Decode& panel);
};

/// Exponents of the window within which fp32 holds scaled addends and results exactly: scales are at most 2^126, results below 2^127.
inline constexpr int fp4_lowest_quick = -90, fp4_highest_quick = 110;

/// Decoded operands and sums [rows][columns] that take their products over K, step by step.
struct Fp4Sums {
  int addend_bits;
  std::int32_t kept;  ///< mask of the bits that a sum keeps
  // From the first step on.
  const std::int8_t* a;
  const std::int32_t *a_corrections, *a_counting, *a_exponents;
  const float* a_significands;
  const std::uint8_t* b;
  const std::int32_t *b_counting, *b_exponents;
  const float* b_significands;
  std::int64_t a_steps, b_steps;  ///< room of a line, of a panel
  std::int64_t rows, columns, steps;
  float* c;
  std::int64_t c_stride;

  /// Called after a step of the sixteen sums of a row and a panel for the lanes, a bit each, that were outside of the quick window:
  /// `before` has the sums, `after` is made right in these lanes.
  void (*mend)(const Fp4Sums& sums, std::int64_t row, std::int64_t panel, std::int64_t step, unsigned lanes, const float* before,
               float* after);
  const void* operands;  ///< for `mend`
};

struct Fp4SumsKernel {
  template <class Tier>
  static void run(const Fp4Sums& sums);
};

}  // namespace dodona::ops
