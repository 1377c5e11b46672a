// Verdicts that are worth nothing: nothing was compared, or zeros would have passed as well.
#pragma once

#include <string_view>

#include "oracle/judge/judge.h"

namespace dodona::oracle {

/// Of an output whose outcome is vacuous: what makes the check worthless.
std::string_view why_vacuous(const OutputVerdict& output);

}  // namespace dodona::oracle
