// Sums of e2m1 products with block scales over many steps, sixteen accumulators at once: the bits of fp4_step (step.h), fast.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quant/tensor_core/decode.h"
#include "quant/tensor_core/step.h"

namespace dodona::quant::tensor_core {

/// Codes and their scales in memory: [lines, k] codes of e2m1, two a byte, the first in the low bits, lines `line_bytes` apart; [lines,
/// k / spec.scale_block] scale codes without gaps.
struct Fp4Codes {
  const std::uint8_t* codes;
  std::int64_t line_bytes;
  const std::uint8_t* scales;
};

class Fp4Columns;

/// The left operand, [rows, k], decoded. K is filled up to whole steps with zeros.
class Fp4Rows {
 public:
  /// Throws bad_value where k is not whole blocks of scales.
  Fp4Rows(const Fp4Spec& spec, const Fp4Codes& operand, std::int64_t rows, std::int64_t k);

  const Fp4Spec& spec() const { return spec_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t k() const { return k_; }

 private:
  friend void accumulate(const Fp4Rows&, std::int64_t, const Fp4Columns&, std::int64_t, std::int64_t, std::int64_t,
                         std::span<float, mma_lanes>);

  Fp4Factors step(std::int64_t row, std::int64_t at) const;

  Fp4Spec spec_;
  std::int64_t rows_, k_, padded_k_;
  std::vector<std::int8_t> numbers_;       // doubled, [rows, padded_k]
  std::vector<std::uint8_t> scale_codes_;  // [rows, padded_k / scale_block]
  // Of groups, [rows, padded_k / group]: bits of the numbers that count, exponent of the scale (`special` for NaN), and its value over 4.
  std::vector<std::uint16_t> counting_;
  std::vector<std::int16_t> exponents_;
  std::vector<float> scales_;
};

/// The right operand, given transposed, [columns, k], decoded into panels of `mma_lanes` columns, as MmaColumns.
class Fp4Columns {
 public:
  /// Throws bad_value where k is not whole blocks of scales.
  Fp4Columns(const Fp4Spec& spec, const Fp4Codes& operand, std::int64_t columns, std::int64_t k);

  const Fp4Spec& spec() const { return spec_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t panels() const { return (columns_ + mma_lanes - 1) / mma_lanes; }
  std::int64_t k() const { return k_; }

 private:
  friend void accumulate(const Fp4Rows&, std::int64_t, const Fp4Columns&, std::int64_t, std::int64_t, std::int64_t,
                         std::span<float, mma_lanes>);

  Fp4Spec spec_;
  std::int64_t columns_, k_, padded_k_;
  std::vector<std::int16_t> numbers_;      // doubled, [panels, padded_k, mma_lanes]
  std::vector<std::uint8_t> scale_codes_;  // [columns, padded_k / scale_block]
  // Of groups, [panels, padded_k / group, mma_lanes].
  std::vector<std::uint16_t> counting_;
  std::vector<std::int16_t> exponents_;
  std::vector<float> scales_;
};

/// accumulators[j] += the products of row `row` of `a` with column mma_lanes * panel + j of `b`, over k_begin <= k < k_end, step by step.
/// Throws bad_value if a range or the operands do not fit together.
void accumulate(const Fp4Rows& a, std::int64_t row, const Fp4Columns& b, std::int64_t panel, std::int64_t k_begin, std::int64_t k_end,
                std::span<float, mma_lanes> accumulators);

/// c[i, j] += row i of `a` times column j of `b` over k_begin <= k < k_end; c is [rows, columns] with row stride `c_stride`.
void accumulate(const Fp4Rows& a, const Fp4Columns& b, std::int64_t k_begin, std::int64_t k_end, float* c, std::int64_t c_stride);

}  // namespace dodona::quant::tensor_core
