// How often each part of what a product adds up was counted: told from the outputs alone.
#pragma once

#include <optional>

#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Of a product the parts of its depth that were not added, or twice, or with another factor, wherever they begin and end: each element
/// that fails is an equation in what the parts count. Only what then accounts for all of the outputs.
std::optional<Explanation> parts_of_depth(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                          const JudgeOptions& options);

}  // namespace dodona::oracle
