// Which scale each block of a product was multiplied with: told from the outputs alone.
#pragma once

#include <optional>

#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Of a product whose operands have scales block by block along its depth: the elements of a row that fail are equations in the row's
/// scales. Where what they say are others of the call's scales, or what a usual mistake makes of its own, and that accounts for the
/// outputs.
std::optional<Explanation> scales_used(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                       const JudgeOptions& options);

}  // namespace dodona::oracle
