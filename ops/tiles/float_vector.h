// Numbers of an epilogue as fp32: scales and biases of any type.
#pragma once

#include <optional>

#include "dodona/exec.h"
#include "dodona/tensor.h"

namespace dodona::ops {

/// The elements of a contiguous tensor: in its own memory where they are fp32 already, else widened. data() is nullptr for an undefined
/// one.
class FloatVector {
 public:
  FloatVector(const Tensor& tensor, const Exec& exec);
  const float* data() const { return data_; }

 private:
  std::optional<Scratch> widened_;
  const float* data_ = nullptr;
};

}  // namespace dodona::ops
