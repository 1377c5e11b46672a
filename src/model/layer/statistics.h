// What a tensor's values are like.
#pragma once

#include <cstdint>

#include "dodona/tensor.h"

namespace dodona::model {

/// Over the finite elements; zeros where there are none.
struct Statistics {
  double min = 0, max = 0, rms = 0;
  std::int64_t not_finite = 0;
};

Statistics statistics(const Tensor& tensor);

}  // namespace dodona::model
