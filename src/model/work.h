// What model ops cost at least.
#pragma once

#include "dodona/tensor.h"
#include "model/layer_weights.h"
#include "model/trace.h"

namespace dodona::model {

inline double bytes_of(const Tensor& tensor) {
  return tensor.defined() ? static_cast<double>(bytes_for(tensor.dtype(), tensor.elements())) : 0.0;
}

/// Tensors read and written once, and `flops` of fp32 arithmetic.
inline Work moved(std::initializer_list<Tensor> tensors, double flops = 0) {
  Work work;
  for (const Tensor& tensor : tensors) work.bytes += bytes_of(tensor);
  work.flops = flops;
  return work;
}

/// A product of `tokens` rows with the module's weight.
inline Work projected(const Projection& projection, std::int64_t tokens, Rounding rounding) {
  Work work;
  const auto rows = static_cast<double>(projection.rows()), columns = static_cast<double>(projection.columns());
  work.weight_bytes = static_cast<double>(projection.bytes());
  const auto activation = static_cast<double>(bytes_for(activation_type(rounding), 1));
  work.bytes = work.weight_bytes + static_cast<double>(tokens) * (rows + columns) * activation;
  const double operations = 2.0 * static_cast<double>(tokens) * rows * columns;
  (projection.is_nvfp4() && rounding == Rounding::bf16 ? work.int8_ops : work.flops) = operations;
  return work;
}

}  // namespace dodona::model
