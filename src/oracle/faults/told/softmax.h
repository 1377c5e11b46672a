// What a softmax was divided by, and below which maxima its terms were taken: told from the outputs alone.
#pragma once

#include <optional>

#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Rows that are golden's times a factor say how much of their sum is missing: that of one warp's columns, of every eighth, of a part. And
/// factors that columns of one thread share say that each thread took its own maximum for the row's.
std::optional<Explanation> softmax_told(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                        const JudgeOptions& options);

}  // namespace dodona::oracle
