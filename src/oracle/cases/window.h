// Parts of a call: some of its rows, computed as a call of their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dodona/op.h"

namespace dodona::oracle {

/// begin <= row < end along a size that rows are independent along (`Properties::rows_independent`).
struct RowRange {
  std::string symbol;
  std::int64_t begin = 0, end = 0;
};
using Window = std::vector<RowRange>;

/// `T=0..8`, or several of them separated by spaces. Throws bad_option.
Window parse_window(std::string_view text);
std::string to_string(const Window& window);

/// The call that gives these rows of the outputs alone. Throws Error: bad_option for a size that rows are not independent along (naming
/// those that they are) and for rows that the call does not have.
Arguments windowed(const Op& op, const Arguments& inputs, const Window& window);
/// A call of the same kind with these parts of its sizes alone, whether or not its outputs are those of the whole.
Arguments resized(const Op& op, const Arguments& inputs, const Window& window);
/// The rows of a call's outputs, or any other parts.
NamedTensors windowed(const Op& op, const NamedTensors& outputs, const Window& window);

/// The expressions of a tensor of this rank, one for each dimension: `T K/2`.
std::vector<std::string> dims_of(const std::string& shape, int rank);
/// Rows of the call along `symbol`; 0 where no tensor has such an axis, or it cannot be cut there.
std::int64_t rows_along(const Op& op, const Arguments& inputs, std::string_view symbol);

}  // namespace dodona::oracle
