// What of many elements is no finite number.
#pragma once

#include <cstdint>

#include "dodona/dtype.h"

namespace dodona::quant {

/// The first of the elements 0..n-1 of a contiguous row that is infinite or no number; n where there is none. `base` needs no alignment.
std::int64_t first_not_finite(DType type, const void* base, std::int64_t n);

}  // namespace dodona::quant
