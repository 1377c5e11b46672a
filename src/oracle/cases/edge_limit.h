// How large the numbers of the distribution `edge` are where products are added up.
#pragma once

#include "dodona/op.h"

namespace dodona::oracle {

/// Of values that are added up:
///  - of products, that is where two of the op's operands share a size that no output has: 2^58, so that 2^10 products of them stay 2^2
///    below the largest fp32 number, and one in 144 products is of two such numbers;
///    8 where attention makes scores of the sums: with 2^-24 of 576 products of 64 between two weights, exp still tells them apart.
///  - of the elements of one operand: a 2048th of the type's largest number, and at most 2^58 where their squares are added up too.
/// 0 for every other argument: a quarter of its type's largest number.
double edge_limit_of(const Op& op, const TensorSpec& spec, DType type);

}  // namespace dodona::oracle
