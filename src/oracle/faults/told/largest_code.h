// Quantizers whose scales are made for another largest code than their type's: told from the scales that were written.
#pragma once

#include <optional>

#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Where every group's largest magnitude over its scale is one number, or, of scales that are powers of two, within one factor of two, and
/// codes follow from these scales.
std::optional<Explanation> largest_code(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                        const JudgeOptions& options);

}  // namespace dodona::oracle
