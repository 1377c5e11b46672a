// What the model does with whole tensors of values between its ops.
#pragma once

#include <cstdint>
#include <vector>

#include "dodona/tensor.h"

namespace dodona::model {

/// A tensor of one fp32 element.
Tensor scalar(float value);
/// The same values in fp32.
Tensor widened(const Tensor& tensor);
/// fp32 values, each rounded to `type`.
Tensor rounded(const Tensor& values, DType type);
/// a + factor * b for [T, C] of one type, added in fp32 and rounded to that type.
Tensor sum(const Tensor& a, const Tensor& b, int threads, float factor = 1);
/// [a | b] of tensors [T, N, ...] of one type that differ in their last sizes alone.
Tensor side_by_side(const Tensor& a, const Tensor& b);
/// Whole numbers as i64, or i32, of a shape.
Tensor tensor_of(const std::vector<std::int64_t>& values, const Dims& shape, DType type = DType::i64);
/// 0, 1 ... n - 1.
std::vector<std::int64_t> rows_in_order(std::int64_t n);
/// As torch's `to(float8_e4m3fn)`: to nearest even, and NaN beyond the largest number.
Tensor cast_to_e4m3(const Tensor& x);
/// a * factor in fp32, rounded to a's type.
Tensor times(const Tensor& a, float factor);

}  // namespace dodona::model
