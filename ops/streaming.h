// Outputs that are written past the caches.
#pragma once

#include <cstdint>

#include "dodona/tensor.h"

namespace dodona::ops {

/// Whether an output is so large that the caches would not keep it for the next op, but lose what they hold to it. Ordinary stores also
/// read each line before they write it; stores past the caches do not, which is a third of the traffic of a copy.
inline bool worth_streaming(const Tensor& output) {
  constexpr std::int64_t kept_by_caches = std::int64_t{4} << 20;
  return bytes_for(output.dtype(), output.elements()) > kept_by_caches;
}

}  // namespace dodona::ops
