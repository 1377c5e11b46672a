// Documented behaviours of other upstreams, where they are no attribute of an op: a case line asks for one by the name of the fault that it
// would be otherwise, `--variant scale-of-zero-rows:output_s=1e-10`, and outputs are judged against it. By role, so that every op has them.
#pragma once

#include "core/case_line.h"
#include "oracle/cases/case_file.h"
#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Whether the case's line asks for any.
bool has_variants(const Case& c);
/// Golden mode's answer to the case with the variants of its line, one after the other. Throws Error (bad_option) naming those that the
/// call has where one is none of them.
GoldenRun run_variant(const Case& c, const Exec& exec);
/// make_case() with the variants of the line. Throws Error as both; a case with variants is not stored compactly.
Case make_variant_case(const CaseLine& line, const Exec& exec, bool compact = false);

}  // namespace dodona::oracle
