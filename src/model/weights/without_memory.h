// What stands for a tensor in a plan.
#pragma once

#include "dodona/tensor.h"

namespace dodona::model {

/// Type and shape alone. It can be sliced, reshaped and asked for its sizes; its values are nowhere.
inline Tensor without_memory(DType dtype, const Dims& shape) {
  // An address, for views are made by moving one; nothing is read or written there.
  static const std::byte nowhere{};
  return {static_cast<const void*>(&nowhere), dtype, shape};
}

}  // namespace dodona::model
