// Of which mean and which variance a layer norm's rows were made: told from the outputs alone.
#pragma once

#include <optional>

#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Means and variances over another number of columns than there are, with or without the zeros that fill them up, over some of the
/// columns, or of another row. Only what then accounts for all of the outputs.
std::optional<Explanation> layernorm_told(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                          const JudgeOptions& options);

}  // namespace dodona::oracle
