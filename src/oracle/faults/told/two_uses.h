// Operands that a norm reads twice, for its mean and for what it multiplies, and once otherwise than it should.
#pragma once

#include <functional>
#include <optional>

#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Of a norm: a mistake in an operand whose rows are the given ones, but for a factor of each row's own: it was made where numbers are
/// multiplied, and not where their mean is taken.
std::optional<Explanation> one_of_two_uses(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                           const JudgeOptions& options, const std::function<bool()>& time_is_up);

}  // namespace dodona::oracle
