// Many attention states merged as FlashInfer's kernels do on an H200, to the bit.
#pragma once

#include "core/define.h"

namespace dodona::ops {

/// v [T, S, N, D], s [T, S, N] in base 2; merged [T, N, D] and [T, N].
struct StatesMerge {
  Tensor v, s, v_merged, s_merged;
};

/// Fewer states than tokens: one chain of all states. Else 128 threads share the states out, each merges its own in order, its mean is
/// rounded to the type of v, and those are merged in order.
void merge_in_order_hopper(const StatesMerge& merge, const Exec& exec);

/// Threads of a block; more than 1024 do not launch.
std::int64_t threads_of_merge(const StatesMerge& merge);

}  // namespace dodona::ops
