// What one rank adds to a sum over ranks: told from the outputs.
#pragma once

#include <optional>

#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Where what fails is the sum over all ranks with other terms of one rank: those of another place, of another rank, or what was summed
/// already, as a buffer holds them that is filled anew before all have read it.
std::optional<Explanation> rank_terms(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                      const JudgeOptions& options);

}  // namespace dodona::oracle
