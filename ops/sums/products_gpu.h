// Matrix products as a GPU's kernels compute them, to the bit: the same operands, scales and epilogue as golden mode's. Which GPU is data:
// the Exec's mode picks the matrix unit.
#pragma once

#include <span>

#include "ops/sums/products.h"

namespace dodona::ops {

/// The matrix unit with which a GPU multiplies two types; nullptr where it has none.
const quant::tensor_core::MmaSpec* unit_of(Mode gpu, DType a, DType b);

/// Writes all products, rounded to out's type. Sums by the unit of the Exec's GPU (of an H200: the accumulator's own), e2m1 with block
/// scales by that of a B200, integers exactly, then rounded to fp32; its parts of K added in its order; promoted ones by fma(sum, fl32(a's
/// scale * b's scale), total), or in the unit's steps, as the accumulator's scaling says. `out` is dense along its rows. Throws unsupported
/// where no kernel has such a sum.
void gpu_products(std::span<const Product> products, const Accumulator& kernel, const Tensor& out, const Exec& exec);

}  // namespace dodona::ops
