// Our ops as FlashInfer-Bench data: Definitions, workloads, inputs in safetensors files.
#pragma once

#include <string>
#include <vector>

#include "oracle/fib/fib_definition.h"

namespace dodona::oracle::fib {

/// Writes one Definition, one workload and one blob for every case line that is wanted below `folder`, laid out as flashinfer-bench reads
/// it: those of ops that are named, lines that are given whole (`rmsnorm T=4 H=64 --special zero-rows`), or all of all ops for none. Every
/// Definition keeps its rules: a name is an input or an output (what is left in an argument X is X_out), element types that it lacks are
/// int8 of the same bits, the reference calls golden mode through the Python package, the recipe stands in tags. No input is random.
/// Returns the names of the Definitions. Throws Error for an unknown op, or a folder that cannot be written.
std::vector<std::string> export_set(const std::string& folder, const std::vector<std::string>& wanted, int threads);

}  // namespace dodona::oracle::fib
