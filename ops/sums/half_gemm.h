// Products of matrices of bf16, f16 and f32 for the ops that are nothing else: golden and fast mode, and the budget of both.
#pragma once

#include <span>
#include <string_view>

#include "dodona/exec.h"
#include "dodona/op.h"

namespace dodona::ops {

/// out[l, i, j] = round(sum over k of a[l, i, k] * b[l, k, j]), all of rank 3. The inner stride of `a` and `out` is 1, and one of the two
/// inner strides of `b`.
struct HalfGemm {
  Tensor a, b, out;
};

/// A matrix [rows, columns] as a batch of one.
Tensor batch_of_one(const Tensor& matrix);
/// Whether the elements of `b` [.., K, N] lie next to each other along K or N.
bool has_dense_columns_or_rows(const Tensor& b);

double half_gemm_flops(const HalfGemm& gemm);

/// What golden mode knows of one sum of products.
struct HalfSum {
  double exact;  ///< k ascending, in double
  double slack;  ///< of an accumulator before rounding
  bool open;     ///< an honest accumulator may overflow: infinities and NaN may come out as well
};
/// Sum of a[k] * b[k], operands of the types named, with the slack of the contract below.
HalfSum half_sum(std::span<const double> a, DType a_type, std::span<const double> b, DType b_type);
/// The contract's words on that slack.
extern const std::string_view half_sum_contract;

void half_gemm_golden(const HalfGemm& gemm, const Exec& exec, Reference* reference, std::string_view output);
void half_gemm_fast(const HalfGemm& gemm, const Exec& exec);

}  // namespace dodona::ops
