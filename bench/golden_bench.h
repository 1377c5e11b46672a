// What golden mode costs at DeepSeek-R1's decode shapes, one request.
#pragma once

#include <vector>

#include "dodona/op.h"

namespace dodona {

/// Whether the op hands out views of its arguments instead of computing.
bool makes_views(const Op& op);

/// Rows `golden/OP/LINE/threads:N`, one for each op. Products are also computed as plainly as one would without this library: operands
/// dequantized to fp32, then multiplied by Eigen; `eigen_ms` is what that takes in the same run, `golden_over_eigen` the ratio of the
/// means.
void register_golden_benchmarks(const std::vector<int>& thread_counts);

}  // namespace dodona
