// The report of a check as people read it in a terminal.
#pragma once

#include <string>

#include "oracle/report/check.h"

namespace dodona::oracle {

/// Several lines, the outcome last. `color` puts outcomes in green and red.
std::string report_text(const CheckResult& result, bool color = false);

/// Columns aligned to their widest cell under a header with a rule; `right` marks right-aligned columns.
std::string table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows,
                  const std::vector<bool>& right);
/// `3.2 %`, `0`, `< 0.1 %`: a share of the budget.
std::string percent(double share);

}  // namespace dodona::oracle
