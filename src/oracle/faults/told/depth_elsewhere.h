// Which other numbers stood in a part of the depth of a product's operand: told from the outputs alone.
#pragma once

#include <optional>

#include "oracle/faults/explain.h"
#include "oracle/faults/faults.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Of a product a part of its depth in which one operand's numbers are those of another row or of another tile, as where a tile was
/// overwritten before it was read, or not yet loaded; or numbers of no place that is known, which the outputs tell all the same. Of all
/// elements, or of those alone that fail: of one tile's rows, of one warp's. Only what then accounts for all of the outputs.
std::optional<Explanation> depth_elsewhere(const FaultCase& call, const NamedTensors& actual, const Verdict& verdict,
                                           const JudgeOptions& options);

}  // namespace dodona::oracle
