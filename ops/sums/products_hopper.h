// Matrix products as a Hopper GPU's kernels compute them, to the bit: the same operands, scales and epilogue as golden mode's.
#pragma once

#include <span>

#include "ops/sums/products.h"

namespace dodona::ops {

/// Writes all products, rounded to out's type. Sums by the accumulator's unit (integers: exact, then rounded to fp32), its parts of K added
/// left to right; promoted ones by fma(sum, fl32(a's scale * b's scale), total). `out` is dense along its rows. Throws unsupported where
/// no kernel has such a sum.
void hopper_products(std::span<const Product> products, const Accumulator& kernel, const Tensor& out, const Exec& exec);

}  // namespace dodona::ops
