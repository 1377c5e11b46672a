// Rows of attention that are zeros because all their scores lie below the number that stands for minus infinity: told from the outputs.
#pragma once

#include <optional>

#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Where the rows that fail are zeros, and are exactly those whose largest score lies below all others' largest ones.
std::optional<Explanation> rows_of_zeros(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                         const JudgeOptions& options);

}  // namespace dodona::oracle
