// Ranks of one process.
#pragma once

#include <functional>

#include "model/layer/ranks.h"
#include "model/ranks/grid.h"

namespace dodona::model {

/// Runs body(rank, its groups) for every rank, in a thread each of which one runs at a time: from gather to gather, the lowest rank first
/// of those that need not wait. So a rank's times are those of a machine that it has for itself, and nothing depends on how threads are
/// scheduled. When a body throws, the others are let go at their next gather, and the first error is thrown on; std::logic_error where some
/// wait for one that has left.
void take_turns(const Grid& grid, const std::function<void(std::int64_t rank, const Ranks& ranks)>& body);

}  // namespace dodona::model
