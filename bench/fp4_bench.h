#pragma once

#include <vector>

#include "simd/limits.h"

namespace dodona {

/// NVFP4 products 4096 x 7168 with weights from memory, raw and packed, by every tier: their share of the read limit R (weights, scales and
/// rows read once) and of the byte dot product limit V. `limit` measures a limit for a number of threads.
void register_fp4_benchmarks(const std::vector<int>& thread_counts, double (*limit)(LimitKind, int));

}  // namespace dodona
