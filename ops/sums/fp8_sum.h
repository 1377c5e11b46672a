// Sums of fp8 products for golden mode, and how far the sums of honest matrix units may be from them.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dodona/dtype.h"

namespace dodona::ops {

/// What the sum's accumulator may lose.
enum class Accumulator {
  hopper_fp8,  ///< the fp8 tensor core of an H200 without promotion, see quant/hopper/tensor_core.h
  fp32,        ///< one fp32 rounding per addition, in any order
};

/// A code as a matrix unit sees it: its value, and the exponent of its representation (that of the smallest normal for denormals).
struct Fp8Factor {
  double value;
  int exponent;
};
using Fp8Factors = std::array<Fp8Factor, 256>;
/// All codes of f8_e4m3 or f8_e5m2.
const Fp8Factors& fp8_factors(DType type);

struct Fp8Sum {
  double exact;  ///< sum of products in double, k ascending: exact but for sums that span more than 53 bits
  double slack;  ///< of an accumulator before scale and rounding; 0 when the sum is not finite
};

/// a . b with slack. Every accumulator may also do the fp32 additions of a better one.
Fp8Sum fp8_sum(Accumulator accumulator, std::span<const Fp8Factor> a, std::span<const Fp8Factor> b);
/// The sum alone.
double fp8_dot(std::span<const Fp8Factor> a, std::span<const Fp8Factor> b);

}  // namespace dodona::ops
