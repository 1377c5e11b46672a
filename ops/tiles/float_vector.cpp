#include "ops/tiles/float_vector.h"

#include "quant/element.h"

namespace dodona::ops {

FloatVector::FloatVector(const Tensor& tensor, const Exec& exec) {
  if (!tensor.defined()) return;
  if (tensor.dtype() == DType::f32) {
    data_ = tensor.as<float>();
    return;
  }
  widened_.emplace(exec.scratch.take(static_cast<std::size_t>(tensor.elements()) * sizeof(float)));
  quant::to_f32(tensor.dtype(), tensor.data(), widened_->as<float>(), tensor.elements());
  data_ = widened_->as<float>();
}

}  // namespace dodona::ops
