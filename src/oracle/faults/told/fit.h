// One unknown number: which value of a float attribute, or which common factor on a scale or a weight, makes golden mode give what a
// kernel gave? For mistakes that no table can list: another epsilon, a softmax scale of another model, a factor of 0.0277.
#pragma once

#include <functional>
#include <vector>

#include "oracle/faults/explain.h"

namespace dodona::oracle {

/// The numbers of the call that reproduce all outputs when they are fitted, one at a time: attributes first, then tensors of role scale or
/// weight, as a factor on all of their elements. Each costs some twenty runs of golden mode; none is begun once `time_is_up`.
/// Fitted to the failing elements of the outputs whose types have more than 8 bits and that golden mode keeps unrounded, then judged as
/// any other explanation; given with as few digits as still reproduce.
std::vector<Explanation> fitted_numbers(const Case& c, const GoldenRun& golden, const NamedTensors& actual, const Verdict& verdict,
                                        const JudgeOptions& options, const std::function<bool()>& time_is_up);

}  // namespace dodona::oracle
