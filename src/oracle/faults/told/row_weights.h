// Whose weight a row was multiplied with: told from the outputs alone.
#pragma once

#include <optional>

#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Where each row that fails is golden's times a factor of its own, and an input that has a number for each row explains every factor: the
/// row was multiplied with another row's.
std::optional<Explanation> row_weights(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                       const JudgeOptions& options);

}  // namespace dodona::oracle
