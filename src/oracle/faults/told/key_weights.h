// Which weights attention must have given its keys: told from the outputs alone.
#pragma once

#include <optional>

#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Of attention the elements of a query's row that fail are equations in the weights of its keys (of tiles of them, where there are more
/// keys than half of the elements). Where some keys have none, or twice theirs, or tiles of keys a factor each, and that accounts for all
/// that fails.
std::optional<Explanation> key_weights(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                       const JudgeOptions& options);

}  // namespace dodona::oracle
