// What keys that a query does not see may leave in its output: kernels take keys in whole blocks.
#pragma once

#include <cstdint>

#include "dodona/tensor.h"

namespace dodona::ops {

/// Consecutive tokens of one request.
struct Tokens {
  std::int64_t first, count;
};

/// Weights of masked keys are 0, and 0 times an infinite or NaN value is NaN. Whether column i of `values`, [T, Nk, D], holds one in these
/// tokens.
bool holds_infinite_value(const Tensor& values, Tokens tokens, std::int64_t head, std::int64_t i);
/// Masks that add -infinity leave NaN of a score that is NaN or +infinity. Whether `query`, a head of queries [T, N, D], has such a score
/// with one of these tokens of `keys`, [T, Nk, D], or may have one: its products may be beyond fp32.
bool may_have_infinite_score(const Tensor& queries, std::int64_t query, std::int64_t query_head, const Tensor& keys, Tokens tokens,
                             std::int64_t head);

}  // namespace dodona::ops
