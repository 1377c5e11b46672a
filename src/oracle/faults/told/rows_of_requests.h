// Outputs whose rows belong to requests, and hold what another row of their own request should: told from the outputs.
#pragma once

#include <optional>

#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Where offsets of the call part an output's rows, and one rule of an index inside of a request (i mod P, the first of each P, i + n)
/// makes golden's rows the given ones.
std::optional<Explanation> rows_of_requests(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                            const JudgeOptions& options);

}  // namespace dodona::oracle
