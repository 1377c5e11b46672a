// What upstream's own tests of an op compare, and how closely, held against the same faults as our judges.
#pragma once

#include <string_view>

#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// The check of an output: the op's own record, or the defaults of `torch.testing.assert_close` for the output's type where there is none.
/// A type that upstream's test does not run is given the larger of the recorded rtol and that default.
Customary customary_check(const Op& op, std::string_view output, DType type);

/// Whether the customary checks of all outputs pass. Elements that the contract leaves unspecified are not compared.
bool customary_pass(const Op& op, const GoldenRun& golden, const NamedTensors& actual);

}  // namespace dodona::oracle
