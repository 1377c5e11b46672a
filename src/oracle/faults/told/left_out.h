// Which experts add nothing to what a mixture of experts gave?
#pragma once

#include <functional>
#include <optional>

#include "oracle/faults/explain.h"

namespace dodona::oracle {

/// Experts without whose weights the outputs would all be right; nothing where there are none. Each is tried alone, and then all that made
/// more of the outputs right together.
std::optional<Explanation> experts_left_out(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                            const JudgeOptions& options, const std::function<bool()>& time_is_up);

}  // namespace dodona::oracle
