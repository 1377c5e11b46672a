// The positions of the largest scores of a row.
#pragma once

#include <cstdint>

#include "dodona/exec.h"

namespace dodona::ops {

/// Writes the positions of the `count` largest of n scores by score_order, 0 < count <= n, rising; of equal scores at the bound the first.
void largest_positions(const float* scores, std::int64_t n, std::int64_t count, std::int32_t* positions, const Exec& exec);

}  // namespace dodona::ops
