// Samplers that draw nothing.
#pragma once

#include <optional>

#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Where every token that a sampler gives stands at one place of its row of probabilities: the largest, the smallest, the first, the last.
std::optional<Explanation> nothing_drawn(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                         const JudgeOptions& options);

}  // namespace dodona::oracle
