// Inputs made from a case line: valid by role, and the same bytes on any machine and thread count.
#pragma once

#include "core/case_line.h"
#include "dodona/op.h"

namespace dodona::oracle {

/// The arguments that `line` describes: inputs filled from Philox streams keyed by (seed, argument name), attributes with the
/// dialect's recipe. Optional tensors whose sizes the line does not determine are left out.
/// Throws Error: unknown_op, bad_shape (missing or impossible sizes), bad_value, bad_option, out_of_memory.
Arguments generate(const CaseLine& line);

/// Fills a contiguous tensor of the given role. `bound`: exclusive upper bound of ids and positions. `dist` as in a case line.
void fill(const Tensor& tensor, Role role, std::int64_t bound, const std::string& dist, std::uint64_t seed, std::string_view name);

}  // namespace dodona::oracle
