// What the rows of an RMS norm were divided by: told from the outputs alone.
#pragma once

#include <optional>

#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Rows that are golden's times a factor say which mean they were divided by: that of a part of their columns, of another row, of
/// magnitudes, one divided by another count.
std::optional<Explanation> norm_told(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                     const JudgeOptions& options);

}  // namespace dodona::oracle
