// The sums of a tensor core, to the bit: Hopper's, and those of its relatives that follow the same rule.
//
// One step (a link of an instruction's chain) adds `products` products to an fp32 accumulator. The exponent of a product is the sum of its
// factors' exponents (a denormal factor has the exponent of its type's smallest normal), not the exponent of its value. With E the largest
// exponent among the products without a zero factor and the accumulator, unless that is zero, and at least `lowest_exponent`:
//
//     every addend, products and accumulator alike, is cut toward zero to `addend_bits` fraction bits below E;
//     they are added exactly;
//     the sum is cut toward zero to `sum_bits` fraction bits below its own exponent, and to the grid of fp32 denormals.
//
// NaN factors, inf * 0 and inf - inf give NaN (0x7FFFFFFF); otherwise an infinity wins; overflow gives infinity. A zero sum is +0.
//
// Source: PTX ISA `wgmma.mma_async` and `mma.sync` as compute capability 9.0 does them; the rows of other capabilities as MMA-Sim
// (arXiv 2511.10909) has them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "dodona/dtype.h"

namespace dodona::quant::hopper {

/// How a unit reads codes, and which of them make a step.
enum class MmaReading {
  as_they_are,  ///< K ascending
  /// 8-bit floats are widened to fp16, and of each 32 products those with k mod 4 in {0, 1} make the first step, the rest the second.
  widened_to_f16,
};

/// A matrix unit, as data: a model more is a row more.
struct MmaSpec {
  int products;         ///< of one step, at most 32
  int addend_bits;      ///< fraction bits below the largest exponent that an addend keeps, at most 25
  int sum_bits;         ///< fraction bits below its own exponent that the sum keeps, at most 23
  int lowest_exponent;  ///< of the window, whatever the addends
  std::array<DType, 2> types;
  MmaReading reading = MmaReading::as_they_are;
  bool operator==(const MmaSpec&) const = default;
};

inline constexpr std::array fp8_types{DType::f8_e4m3, DType::f8_e5m2}, half_types{DType::bf16, DType::f16};

/// e4m3 and e5m2 in any mix, `wgmma`: what CUTLASS, cuBLASLt, and Triton with blocks of 64 rows and more use.
inline constexpr MmaSpec fp8_wgmma{32, 13, 13, -133, fp8_types};
/// The same types, `mma.sync`: Triton with blocks of fewer than 64 rows.
inline constexpr MmaSpec fp8_mma_sync{16, 25, 23, -133, fp8_types, MmaReading::widened_to_f16};
/// bf16 and fp16, `wgmma` and `mma.sync`; also `tcgen05.mma` kind::f16 of compute capability 10.0.
inline constexpr MmaSpec half_mma{16, 25, 23, -133, half_types};
/// bf16 and fp16, `mma.sync` of 8.0, 8.6 and 8.9: an instruction of 16 products is a chain of two steps.
inline constexpr MmaSpec sm80_half{8, 24, 23, -132, half_types};
/// e4m3 and e5m2, `mma.sync` of 8.9, likewise.
inline constexpr MmaSpec sm89_fp8{16, 13, 13, -132, fp8_types};
/// e4m3 and e5m2, `tcgen05.mma` kind::f8f6f4 of 10.0.
inline constexpr MmaSpec sm100_fp8{32, 25, 23, -133, fp8_types};

/// What `mma.sync` of Hopper does with a type.
inline const MmaSpec& mma_sync(DType type) {
  return bits(type) == 8 ? fp8_mma_sync : half_mma;
}

/// One operand element as the tensor core sees it.
struct Factor {
  float value;
  int exponent;  ///< of the type's representation; means nothing for zeros, infinities and NaN
};

/// Decodes a code of f8_e4m3, f8_e5m2, f16 or bf16. Throws bad_dtype if `spec` does not take the type.
Factor decode_factor(const MmaSpec& spec, DType type, std::uint32_t code);

/// One step, as defined above: a readable reference, for any number of products up to 32.
float mma_step(const MmaSpec& spec, std::span<const Factor> a, std::span<const Factor> b, float accumulator);

/// K in whole steps.
std::int64_t padded_k(const MmaSpec& spec, std::int64_t k);
/// A line of `k` codes in the order in which the unit takes it, into rooms of padded_k numbers; what belongs to no code is left as it is.
/// Exponents mean nothing for zeros, infinities and NaN. For float and double. Throws bad_dtype.
template <class Number>
void decode_line(const MmaSpec& spec, DType type, const void* codes, std::int64_t k, Number* values, std::int16_t* exponents);

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

}  // namespace dodona::quant::hopper
