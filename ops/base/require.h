// Arguments whose element type or shape follows from others in ways that a schema cannot say.
#pragma once

#include <string>
#include <vector>

#include "dodona/error.h"
#include "dodona/tensor.h"

namespace dodona::ops {

inline void require_type(const char* argument, const Tensor& t, DType wanted, const std::string& why) {
  if (t.dtype() != wanted)
    throw Error(ErrorCode::bad_dtype, "", argument,
                "has dtype " + std::string(name(t.dtype())) + ", expected " + std::string(name(wanted)) + ": " + why);
}

/// One of the shapes; none at all where there are none.
inline void require_shape(const char* argument, const Tensor& t, const std::vector<Dims>& accepted, const std::string& why) {
  if (accepted.empty() && !t.defined()) return;
  if (!t.defined())
    throw Error(ErrorCode::missing_argument, "", argument, "is missing, expected " + to_string(accepted.front()) + ": " + why);
  for (const Dims& shape : accepted)
    if (t.shape() == shape) return;
  throw Error(ErrorCode::bad_shape, "", argument,
              "has shape " + to_string(t.shape()) + ", expected " + (accepted.empty() ? "none" : to_string(accepted.front())) + ": " + why);
}

}  // namespace dodona::ops
