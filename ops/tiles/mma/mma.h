// Sums of a tensor core over many steps: the bits of quant/tensor_core/step.h, as fast as this machine adds.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dodona/isa.h"
#include "ops/tiles/mma/mma_lanes.h"
#include "quant/tensor_core/decode.h"
#include "quant/tensor_core/unit.h"

namespace dodona::ops {

/// Numbers of an operand as the unit takes them, with the exponents of their representations.
struct MmaFactors {
  std::unique_ptr<float[]> values;
  std::unique_ptr<std::int16_t[]> exponents;
  std::vector<std::int32_t> scales;  ///< exponents of the steps' scales; empty: none
  std::size_t room = 0;              ///< numbers that there is memory for
};

/// Codes of ue8m0, [lines, k / products], one for each step of a line (the last step of a K that ends within one has its own); nullptr: the
/// unit takes no scales. Both operands have them, or neither.
struct MmaScales {
  const std::uint8_t* codes = nullptr;
  std::int64_t stride = 0;  ///< from line to line
};

class MmaColumns;

/// The left operand, [rows, k], decoded.
class MmaRows {
 public:
  /// `codes`: [rows, k], row stride `row_stride` elements. Throws bad_dtype and bad_value.
  MmaRows(const quant::tensor_core::MmaSpec& spec, DType type, const void* codes, std::int64_t rows, std::int64_t k,
          std::int64_t row_stride, Isa isa = default_isa(), const MmaScales& scales = {});
  /// One code a byte, in its low bits.
  MmaRows(const quant::tensor_core::MmaSpec& spec, quant::tensor_core::SmallFloat type, const std::uint8_t* codes, std::int64_t rows,
          std::int64_t k, std::int64_t row_stride, Isa isa = default_isa(), const MmaScales& scales = {});
  MmaRows(const quant::tensor_core::MmaSpec& spec, DType type, const void* codes, std::int64_t rows, std::int64_t k)
      : MmaRows(spec, type, codes, rows, k, k) {}
  /// Nothing yet.
  explicit MmaRows(Isa isa = default_isa()) : spec_{}, rows_(0), k_(0), granule_(0), room_(0), isa_(isa) {}

  /// Other numbers, without scales, in place of those that are there; memory that is large enough stays. Arguments and errors are those of
  /// the constructor.
  void decode(const quant::tensor_core::MmaSpec& spec, DType type, const void* codes, std::int64_t rows, std::int64_t k,
              std::int64_t row_stride);

  std::int64_t rows() const { return rows_; }
  /// Sums start and stop at multiples of this (or stop at k).
  std::int64_t granule() const { return granule_; }

 private:
  friend void accumulate(const MmaRows&, const MmaColumns&, std::int64_t, std::int64_t, float*, std::int64_t);

  quant::tensor_core::MmaSpec spec_;
  std::int64_t rows_, k_, granule_, room_;
  Isa isa_;
  MmaFactors factors_;
};

/// The right operand, given transposed, [columns, k], decoded into panels of `mma_lanes` columns. Takes 6 bytes an element: of a large
/// matrix, decode some columns and some of K where they are used.
class MmaColumns {
 public:
  /// `codes`: [columns, k] (that is, B [k, columns] column-major), row stride `row_stride` elements. Throws bad_dtype and bad_value.
  MmaColumns(const quant::tensor_core::MmaSpec& spec, DType type, const void* codes, std::int64_t columns, std::int64_t k,
             std::int64_t row_stride, Isa isa = default_isa(), const MmaScales& scales = {});
  /// One code a byte, in its low bits.
  MmaColumns(const quant::tensor_core::MmaSpec& spec, quant::tensor_core::SmallFloat type, const std::uint8_t* codes, std::int64_t columns,
             std::int64_t k, std::int64_t row_stride, Isa isa = default_isa(), const MmaScales& scales = {});
  MmaColumns(const quant::tensor_core::MmaSpec& spec, DType type, const void* codes, std::int64_t columns, std::int64_t k)
      : MmaColumns(spec, type, codes, columns, k, k) {}
  /// Nothing yet.
  explicit MmaColumns(Isa isa = default_isa()) : spec_{}, columns_(0), k_(0), room_(0), isa_(isa) {}

  /// As of MmaRows.
  void decode(const quant::tensor_core::MmaSpec& spec, DType type, const void* codes, std::int64_t columns, std::int64_t k,
              std::int64_t row_stride);

  std::int64_t columns() const { return columns_; }

 private:
  friend void accumulate(const MmaRows&, const MmaColumns&, std::int64_t, std::int64_t, float*, std::int64_t);

  quant::tensor_core::MmaSpec spec_;
  std::int64_t columns_, k_, room_;
  Isa isa_;
  MmaFactors factors_;
};

/// c[i, j] += row i of `a` times column j of `b` over k_begin <= k < k_end, step by step; c is [rows, columns] with row stride `c_stride`.
/// A kernel that promotes every 128 of K starts again with zeros every 128. Throws bad_value if a range or the operands do not fit
/// together.
void accumulate(const MmaRows& a, const MmaColumns& b, std::int64_t k_begin, std::int64_t k_end, float* c, std::int64_t c_stride);

/// c[j] += a . b[j], `a` [k], `b` [n, k] with rows `b_stride` apart. The integer tensor core is exact, modulo 2^32.
void accumulate_i8(const std::int8_t* a, const std::int8_t* b, std::int64_t k, std::int64_t n, std::int64_t b_stride, std::int32_t* c);

}  // namespace dodona::ops
