// Sums of e2m1 products with block scales over many steps: the bits of fp4_step (quant/tensor_core/step.h), as fast as this machine adds.
#pragma once

#include <cstdint>
#include <memory>

#include "dodona/isa.h"
#include "ops/tiles/mma/mma_fp4_lanes.h"
#include "quant/tensor_core/unit.h"

namespace dodona::ops {

/// Codes and their scales in memory: [lines, k] codes of e2m1, two a byte, the first in the low bits, lines `line_bytes` apart; [lines,
/// k / spec.scale_block] scale codes, lines `line_scales` apart.
struct Fp4Codes {
  const std::uint8_t* codes;
  std::int64_t line_bytes;
  const std::uint8_t* scales;
  std::int64_t line_scales = 0;  ///< 0: without gaps
};

/// Decoded lines, what mma_fp4_lanes.h has of them. K is filled up to whole steps with zeros.
struct Fp4Numbers {
  std::int64_t steps = 0;
  std::unique_ptr<std::uint8_t[]> scale_codes;  ///< of groups, [lines][steps][4]
  std::unique_ptr<std::uint8_t[]> numbers;
  std::unique_ptr<std::int32_t[]> corrections, counting, exponents;
  std::unique_ptr<float[]> significands;
};

class Fp4Columns;

/// The left operand, [rows, k], decoded.
class Fp4Rows {
 public:
  /// Throws bad_value where k is not whole blocks of scales.
  Fp4Rows(const quant::tensor_core::Fp4Spec& spec, const Fp4Codes& operand, std::int64_t rows, std::int64_t k, Isa isa = default_isa());

 private:
  friend void accumulate(const Fp4Rows&, const Fp4Columns&, std::int64_t, std::int64_t, float*, std::int64_t);

  quant::tensor_core::Fp4Spec spec_;
  std::int64_t rows_, k_;
  Isa isa_;
  Fp4Numbers numbers_;
};

/// The right operand, given transposed, [columns, k], decoded into panels of `mma_lanes` columns. Takes nearly two bytes an element: of a
/// large matrix, decode some columns and some of K where they are used.
class Fp4Columns {
 public:
  /// Throws bad_value where k is not whole blocks of scales.
  Fp4Columns(const quant::tensor_core::Fp4Spec& spec, const Fp4Codes& operand, std::int64_t columns, std::int64_t k,
             Isa isa = default_isa());

 private:
  friend void accumulate(const Fp4Rows&, const Fp4Columns&, std::int64_t, std::int64_t, float*, std::int64_t);

  quant::tensor_core::Fp4Spec spec_;
  std::int64_t columns_, k_;
  Fp4Numbers numbers_;
};

/// c[i, j] += row i of `a` times column j of `b` over k_begin <= k < k_end, step by step; c is [rows, columns] with row stride `c_stride`.
/// Throws bad_value if a range or the operands do not fit together.
void accumulate(const Fp4Rows& a, const Fp4Columns& b, std::int64_t k_begin, std::int64_t k_end, float* c, std::int64_t c_stride);

}  // namespace dodona::ops
