// Parts of a call: some of its rows, computed as a call of their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/row_range.h"
#include "dodona/op.h"

namespace dodona::oracle {

using dodona::parse_window;
using dodona::RowRange;
using dodona::to_string;
using dodona::Window;

/// The call that gives these rows of the outputs alone. Throws Error: bad_option for a size that rows are not independent along (naming
/// those that they are) and for rows that the call does not have.
Arguments windowed(const Op& op, const Arguments& inputs, const Window& window);
/// A call of the same kind with these parts of its sizes alone, whether or not its outputs are those of the whole.
Arguments resized(const Op& op, const Arguments& inputs, const Window& window);
/// The rows of a call's outputs, or any other parts.
NamedTensors windowed(const Op& op, const NamedTensors& outputs, const Window& window);

/// The expressions of a tensor of this rank, one for each dimension: `T K/2`.
std::vector<std::string> dims_of(const std::string& shape, int rank);
/// Begin and end along each axis of an argument of this shape in a call's window. Throws as windowed().
std::vector<std::pair<std::int64_t, std::int64_t>> part_of(const Op& op, const TensorSpec& spec, const Dims& shape, const Window& window);
/// Throws bad_option unless the rows of the op are independent along all of the window's sizes.
void require_independent(const Op& op, const Window& window);
/// Rows of the call along `symbol`; 0 where no tensor has such an axis, or it cannot be cut there.
std::int64_t rows_along(const Op& op, const Arguments& inputs, std::string_view symbol);

}  // namespace dodona::oracle
