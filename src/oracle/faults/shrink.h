// The smallest case line that still fails.
#pragma once

#include <functional>

#include "core/case_line.h"

namespace dodona::oracle {

enum class Trial {
  fails,  ///< the kernel's outputs are wrong
  passes,
  unusable,  ///< no such case, or the kernel gave nothing that can be judged
};

struct Shrunk {
  CaseLine line;
  int runs = 0, unusable = 0;
  bool stopped = false;  ///< `max_runs` was reached
};

/// From a line that fails towards smaller sizes and counts and simpler inputs (no dialect, default types and attributes, seed 0, values
/// that are multiples of a half), as long as `attempt` still fails. Sizes are bisected, so the result is the smallest where failing is
/// monotone.
Shrunk shrink(const CaseLine& failing, const std::function<Trial(const CaseLine&)>& attempt, int max_runs);

}  // namespace dodona::oracle
