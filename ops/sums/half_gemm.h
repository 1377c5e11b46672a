// Products of matrices of bf16, f16 and f32 in fast mode.
#pragma once

#include "dodona/exec.h"
#include "dodona/op.h"

namespace dodona::ops {

/// out[l, i, j] = round(sum over k of a[l, i, k] * b[l, k, j]), all of rank 3. The inner stride of `a` and `out` is 1, and one of the two
/// inner strides of `b`.
struct HalfGemm {
  Tensor a, b, out;
};

/// Whether the elements of `b` [.., K, N] lie next to each other along K or N.
bool has_dense_columns_or_rows(const Tensor& b);

double half_gemm_flops(const HalfGemm& gemm);

void half_gemm_fast(const HalfGemm& gemm, const Exec& exec);

}  // namespace dodona::ops
