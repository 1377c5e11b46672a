// Memory for weights.
#pragma once

#include "dodona/tensor.h"

namespace dodona::model {

/// An owning contiguous tensor whose contents are indeterminate: what is about to be filled need not be cleared first. Large ones ask for
/// huge pages. Throws out_of_memory.
Tensor uninitialized(DType dtype, const Dims& shape);

}  // namespace dodona::model
