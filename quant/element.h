// Elements of any type, one at a time or many, as doubles.
//
// Reading is exact except for 64-bit integers beyond 2^53. Writing rounds once, to nearest even:
//  - f32, f16, bf16, e5m2: overflow gives infinity; e4m3: beyond 464 NaN, as framework casts do; e2m1 saturates at 6 (NaN gives +6);
//  - e8m0: nearest power of two (`ue8m0_nearest`);
//  - integers: nearest even, saturating; NaN gives 0; i4 saturates at -8 and 7;
//  - bool: not zero (NaN is true).
#pragma once

#include <cstdint>

#include "dodona/dtype.h"
#include "dodona/tensor.h"

namespace dodona::quant {

/// Element `index` of a contiguous row that starts at `base`; packed types count elements. `base` needs no alignment.
double load(DType type, const void* base, std::int64_t index);
void store(DType type, void* base, std::int64_t index, double value);
/// The bits of an element, in the low bits of the result.
std::uint64_t load_bits(DType type, const void* base, std::int64_t index);
void store_bits(DType type, void* base, std::int64_t index, std::uint64_t value);

/// Element with row-major logical index `linear`; strides are honoured.
double get(const Tensor& tensor, std::int64_t linear);
void set(const Tensor& tensor, std::int64_t linear, double value);
std::uint64_t get_bits(const Tensor& tensor, std::int64_t linear);
void set_bits(const Tensor& tensor, std::int64_t linear, std::uint64_t value);

/// Elements 0..n-1 of a contiguous row; f64 and wide integers round once to f32.
void to_f32(DType type, const void* source, float* destination, std::int64_t n);
void to_f64(DType type, const void* source, double* destination, std::int64_t n);
void from_f32(DType type, const float* source, void* destination, std::int64_t n);
void from_f64(DType type, const double* source, void* destination, std::int64_t n);

/// The value that storing `value` and reading it back gives.
double round_to(DType type, double value);

/// Spacing of the type's values in the binade of |x|: at least the smallest denormal, and beyond the largest finite value the spacing of
/// the top binade. For e8m0 the distance to the next power of two up; 1 for integers. NaN gives NaN.
double ulp(DType type, double x);
/// Largest finite value (integers: largest; bool: 1).
double max_finite(DType type);
/// Smallest (most negative) finite value; 2^-127 for e8m0.
double min_finite(DType type);
/// Smallest positive value (integers and bool: 1).
double min_subnormal(DType type);

/// The smallest value of the type above x; +inf where there is none (also where the type has no infinity). Zero is positive. NaN gives NaN.
double next_up(DType type, double x);
/// The largest value of the type below x; -inf where there is none. NaN gives NaN.
double next_down(DType type, double x);

}  // namespace dodona::quant
