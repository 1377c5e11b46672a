// fp32 products of cuBLAS, to the bit: its choice of kernel and of parts of K, as read off an H200 (CUDA 13.0).
#pragma once

#include <cstdint>

#include "core/describe.h"
#include "dodona/exec.h"

namespace dodona::ops {

/// Whether the order of sums of `rows` rows times `columns` columns of `k` numbers is known.
bool cublas_f32_is_known(std::int64_t rows, std::int64_t columns, std::int64_t k);
/// out [T, N] = input [T, K] * weight [N, K]^T, all of it f32 there: narrower operands are widened.
void cublas_f32_product(const Tensor& input, const Tensor& weight, const Tensor& out, const Exec& exec);

/// The contract's words on it.
extern const std::string_view cublas_f32_contract;

}  // namespace dodona::ops
