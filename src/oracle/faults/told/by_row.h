// A mistake that each row makes to an extent of its own.
#pragma once

#include <functional>
#include <optional>

#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// One mistake in variants that are numbers, each row with one of its own: together they account for all that fails.
std::optional<Explanation> by_row(const Fault& fault, const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                  const JudgeOptions& options, const std::function<bool()>& time_is_up);

}  // namespace dodona::oracle
