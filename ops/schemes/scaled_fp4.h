// What products of FP4 matrices with block scales share: operands, and the factor of the whole product.
#pragma once

#include "dodona/tensor.h"
#include "ops/sums/products.h"

namespace dodona::ops {

/// `codes` [lines, k/2] in u8 with the scales of their blocks.
inline Operand fp4_operand(const Tensor& codes, const BlockScales& scales) {
  const std::int64_t k = codes.size(1) * 2;
  return {.type = DType::f4_e2m1, .codes = codes.data(), .count = codes.size(0), .k = k, .stride = k, .scales = scales, .zeros = {}};
}

/// alpha * a b^T; an undefined alpha is 1.
inline Product fp4_product(const Operand& a, const Operand& b, const Tensor& alpha) {
  Epilogue epilogue{.factors = {}, .addend = {}, .keeps_denormals = true};
  if (alpha.defined()) epilogue.factors.push_back({whole_term(alpha), {}});
  return {.a = a, .b = b, .epilogue = epilogue};
}

}  // namespace dodona::ops
