// Some rows of a call: what a case line, a recording or a check may be of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dodona {

/// begin <= row < end along a size that rows are independent along (`Properties::rows_independent`).
struct RowRange {
  std::string symbol;
  std::int64_t begin = 0, end = 0;
  bool operator==(const RowRange&) const = default;
};
using Window = std::vector<RowRange>;

/// `T=0..8`, or several of them separated by spaces. Throws bad_option, also for a size that stands twice.
Window parse_window(std::string_view text);
std::string to_string(const Window& window);

}  // namespace dodona
