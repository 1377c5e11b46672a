#pragma once

#include <vector>

namespace dodona {

/// NVFP4 products 4096 x 7168 with weights from memory, raw and packed, by every tier: their share of the read limit R (weights, scales and
/// rows read once) and of the byte dot product limit V.
void register_fp4_benchmarks(const std::vector<int>& thread_counts);

}  // namespace dodona
