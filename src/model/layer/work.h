// What model ops cost at least.
#pragma once

#include <initializer_list>

#include "dodona/tensor.h"
#include "model/layer/trace.h"

namespace dodona::model {

inline double bytes_of(const Tensor& tensor) {
  return tensor.defined() ? static_cast<double>(bytes_for(tensor.dtype(), tensor.elements())) : 0.0;
}

/// Tensors read once, and `flops` of fp32 arithmetic.
inline Work reading(std::initializer_list<Tensor> tensors, double flops = 0) {
  Work work;
  for (const Tensor& tensor : tensors) work.bytes += bytes_of(tensor);
  work.flops = flops;
  return work;
}

}  // namespace dodona::model
