// The sums of a Hopper tensor core, to the bit.
//
// One instruction step adds `products` products to an fp32 accumulator. The exponent of a product is the sum of its factors' exponents
// (a denormal factor has the exponent of its type's smallest normal), not the exponent of its value. With E the largest exponent among
// the products without a zero factor and the accumulator, unless that is zero, and at least -133:
//
//     every addend, products and accumulator alike, is cut toward zero to `addend_bits` fraction bits below E;
//     they are added exactly;
//     the sum is cut toward zero to `sum_bits` fraction bits below its own exponent, and to the grid of fp32 denormals.
//
// NaN factors, inf * 0 and inf - inf give NaN (0x7FFFFFFF); otherwise an infinity wins; overflow gives infinity. A zero sum is +0.
//
// Source: PTX ISA `wgmma.mma_async` and `mma.sync` as compute capability 9.0 does them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dodona/dtype.h"

namespace dodona::quant::hopper {

struct MmaSpec {
  int products;     ///< of one step
  int addend_bits;  ///< fraction bits below the largest exponent that an addend keeps
  int sum_bits;     ///< fraction bits below its own exponent that the sum keeps
  bool operator==(const MmaSpec&) const = default;
};

/// e4m3 and e5m2 in any mix, `wgmma`: what CUTLASS, cuBLASLt, and Triton with blocks of 64 rows and more use.
inline constexpr MmaSpec fp8_wgmma{32, 13, 13};
/// bf16 and fp16, `wgmma` and `mma.sync`. Given e4m3 or e5m2, it does what `mma.sync` does with them (Triton with blocks of fewer than
/// 64 rows): factors are widened to fp16, and of each 32 products those with k mod 4 in {0, 1} make the first step, the rest the second.
inline constexpr MmaSpec half_mma{16, 25, 23};

/// One operand element as the tensor core sees it.
struct Factor {
  float value;
  int exponent;  ///< of the type's representation; means nothing for zeros, infinities and NaN
};

/// Decodes a code of f8_e4m3, f8_e5m2, f16 or bf16. Throws bad_dtype if `spec` does not take the type.
Factor decode_factor(const MmaSpec& spec, DType type, std::uint32_t code);

/// One step, as defined above: a readable reference, for any number of products up to 32.
float mma_step(const MmaSpec& spec, std::span<const Factor> a, std::span<const Factor> b, float accumulator);

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

/// c[j] += a . b[j] over all of k, codes in: `a` [k], `b` [n, k]. Decodes `b` at each call; to use it again, keep an MmaColumns.
void accumulate_fp8(const std::uint8_t* a, DType a_type, const std::uint8_t* b, DType b_type, std::int64_t k, std::int64_t n, float* c);
void accumulate_bf16(const std::uint16_t* a, const std::uint16_t* b, std::int64_t k, std::int64_t n, float* c);
void accumulate_f16(const std::uint16_t* a, const std::uint16_t* b, std::int64_t k, std::int64_t n, float* c);
/// The integer tensor core is exact, modulo 2^32.
void accumulate_i8(const std::int8_t* a, const std::int8_t* b, std::int64_t k, std::int64_t n, std::int32_t* c);

}  // namespace dodona::quant::hopper
