// Each part of the outputs that fails, told from another index of an operand, or from another number, in the place of its own.
#pragma once

#include <functional>
#include <optional>

#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Golden mode runs with every index in turn along a dimension of an operand, or of several that share it, read for all of them; with
/// operands read so many indices further; with every number in turn for all of an operand's whole numbers. Where for each part of the
/// outputs (head, row, tile) one of these gives all that fails of it, far beyond chance, that is what the part was made of.
struct Substituted {
  Explanation explanation;
  bool by_rule;  ///< one number, or one rule, serves all parts: else each has some
};
std::optional<Substituted> substituted(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                       const JudgeOptions& options, const std::function<bool()>& time_is_up);

}  // namespace dodona::oracle
