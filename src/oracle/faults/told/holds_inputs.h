// Outputs that hold what an input holds: told from the outputs alone.
#pragma once

#include <optional>

#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Elements that fail and are an input's, or another output's, bit by bit, rows of them at a time: a buffer that was filled anew before it
/// was stored, keys in the place of values. Only what accounts for all elements that fail.
std::optional<Explanation> holds_inputs(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                        const JudgeOptions& options);

}  // namespace dodona::oracle
