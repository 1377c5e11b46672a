// How fast products in the modes of GPUs are.
#pragma once

#include <vector>

namespace dodona {

/// Rows `MODE/OP/LINE/threads:N` for ops that multiply matrices as tensor cores or threads of a GPU do: `Gproducts/s`, and as a share of
/// half of F (a fused multiply-add is a product).
void register_hopper_benchmarks(const std::vector<int>& thread_counts);

}  // namespace dodona
