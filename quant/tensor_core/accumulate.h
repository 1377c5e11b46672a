// Sums of a tensor core over many steps, sixteen accumulators at once: the bits of step.h, as fast as this machine adds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quant/tensor_core/decode.h"

namespace dodona::quant::tensor_core {

/// Accumulators that are worked on together.
inline constexpr int mma_lanes = 16;

class MmaColumns;

/// The left operand, [rows, k], decoded.
class MmaRows {
 public:
  /// `codes`: [rows, k], row stride `row_stride` elements. Throws bad_dtype and bad_value.
  MmaRows(const MmaSpec& spec, DType type, const void* codes, std::int64_t rows, std::int64_t k, std::int64_t row_stride);
  MmaRows(const MmaSpec& spec, DType type, const void* codes, std::int64_t rows, std::int64_t k) : MmaRows(spec, type, codes, rows, k, k) {}

  const MmaSpec& spec() const { return spec_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t k() const { return k_; }
  /// Sums start and stop at multiples of this (or stop at k).
  std::int64_t granule() const { return granule_; }

 private:
  friend void accumulate(const MmaRows&, std::int64_t, const MmaColumns&, std::int64_t, std::int64_t, std::int64_t,
                         std::span<float, mma_lanes>);

  MmaSpec spec_;
  std::int64_t rows_, k_, granule_;
  std::int64_t padded_k_;                // whole granules
  std::vector<float> values_;            // [rows, padded_k]
  std::vector<std::int16_t> exponents_;  // [rows, padded_k]
};

/// The right operand, given transposed, [columns, k], decoded into panels of `mma_lanes` columns. Takes 6 bytes an element: for a large
/// matrix make one object per panel where it is used. Columns of the last panel that do not exist are zero.
class MmaColumns {
 public:
  /// `codes`: [columns, k] (that is, B [k, columns] column-major), row stride `row_stride` elements. Throws bad_dtype and bad_value.
  MmaColumns(const MmaSpec& spec, DType type, const void* codes, std::int64_t columns, std::int64_t k, std::int64_t row_stride);
  MmaColumns(const MmaSpec& spec, DType type, const void* codes, std::int64_t columns, std::int64_t k)
      : MmaColumns(spec, type, codes, columns, k, k) {}

  const MmaSpec& spec() const { return spec_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t panels() const { return (columns_ + mma_lanes - 1) / mma_lanes; }
  std::int64_t k() const { return k_; }
  std::int64_t granule() const { return granule_; }

 private:
  friend void accumulate(const MmaRows&, std::int64_t, const MmaColumns&, std::int64_t, std::int64_t, std::int64_t,
                         std::span<float, mma_lanes>);

  MmaSpec spec_;
  std::int64_t columns_, k_, granule_, padded_k_;
  std::vector<float> values_;            // [panels, padded_k, mma_lanes]
  std::vector<std::int16_t> exponents_;  // [panels, padded_k, mma_lanes]
};

/// accumulators[j] += the products of row `row` of `a` with column mma_lanes * panel + j of `b`, over k_begin <= k < k_end, step by step.
/// A kernel that promotes every 128 of K starts again with zeros every 128. Throws bad_value if a range or the operands do not fit
/// together.
void accumulate(const MmaRows& a, std::int64_t row, const MmaColumns& b, std::int64_t panel, std::int64_t k_begin, std::int64_t k_end,
                std::span<float, mma_lanes> accumulators);

/// c[i, j] += row i of `a` times column j of `b` over k_begin <= k < k_end; c is [rows, columns] with row stride `c_stride`.
void accumulate(const MmaRows& a, const MmaColumns& b, std::int64_t k_begin, std::int64_t k_end, float* c, std::int64_t c_stride);

/// c[j] += a . b[j], `a` [k], `b` [n, k] with rows `b_stride` apart. The integer tensor core is exact, modulo 2^32.
void accumulate_i8(const std::int8_t* a, const std::int8_t* b, std::int64_t k, std::int64_t n, std::int64_t b_stride, std::int32_t* c);

}  // namespace dodona::quant::tensor_core
