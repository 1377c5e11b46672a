// Cases made from a line: inputs, golden outputs, budgets, digests.
#pragma once

#include "core/case_line.h"
#include "oracle/cases/case_file.h"

namespace dodona::oracle {

/// The case that `line` describes, its outputs those of golden mode. The same line gives the same case for every thread count and ISA.
/// `compact` leaves the budgets out; save_case then stores line and digests only.
/// Throws Error as generate(), and what the op says of these inputs.
Case make_case(const CaseLine& line, const Exec& exec, bool compact = false);

/// The case of some rows of a line's call (all of them without a window), for outputs that a kernel gave: without outputs, to be stored
/// with line, digests of the inputs and what the kernel gave. Throws as make_case(), and as windowed().
Case recorded_case(const CaseLine& line, const Window& window, int threads);

/// Gives a compact case the outputs that it has digests of; other cases stay as they are. Throws bad_file when golden mode makes other
/// bits than it did, saying whether the contract has changed since.
void complete(Case& c, const Exec& exec);

/// What golden mode leaves open of an output, as a case stores it: `exact.`, `slack.` and `open.` tensors.
void add_budget(const TensorSpec& spec, const Tensor& golden, const ReferenceOutput& reference, NamedTensors& budgets);

/// SHA-256 of every tensor by stored name: `in.<argument>`, `out.<name>`.
std::map<std::string, std::string> digests_of(const Arguments& inputs, const NamedTensors& outputs);

}  // namespace dodona::oracle
