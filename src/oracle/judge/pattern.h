// The pattern of an error: where the failing elements lie, and how their values relate to golden's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dodona/op.h"

namespace dodona::oracle {

/// Where the failing elements lie, in the words of a reader who looks for the loop that is wrong: one row, one column, one tile, the tail
/// of the rows, stripes, one index of a leading dimension (`names` gives each dimension's name, for example "head"), sporadic, every
/// element.
std::string place_of(const std::vector<std::int64_t>& failing, std::int64_t compared, const Dims& shape,
                     const std::vector<std::string>& names = {});

/// How the failing actual values relate to golden: a constant factor or offset, zeros, NaN, another element's value (shifted, halves
/// swapped, rows in another order), the sign, one unit in the last place too low. Empty when nothing fits nearly all of them.
/// `shape` is how to see the elements, see logical_view().
std::vector<std::string> relations_of(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual,
                                      const std::vector<double>& exact, const Dims& shape);

/// ` (half)`, ` (ln 2: a logarithm in the other base)`: what a factor is known as among kernel writers; nothing for any other.
std::string meaning_of_factor(double factor);

/// Whose rows fail, by what the inputs say of them: one group of rows between offsets (an indptr that ends at the number of rows), or the
/// tokens that are routed to one expert (expert ids, a row per output row); or the rows, or groups, where an input is all zeros, or holds
/// NaN or infinities.
std::vector<std::string> owners_of(const OpSchema& schema, const Arguments& inputs, const std::vector<std::int64_t>& failing,
                                   const Dims& shape);

/// What failing whole numbers stand for that is not there: tokens, or experts, behind the last. A negative one may stand for none.
std::optional<std::string> outside_of(const OpSchema& schema, const Arguments& inputs, const std::vector<std::int64_t>& failing,
                                      const Tensor& golden, const Tensor& actual);

/// An output's shape as a kernel writer sees it: heads that lie side by side in a row are a dimension of their own; dimensions are called
/// "expert", "head", "token" where the schema's symbols say so, else by their symbol. Row-major counting is that of the tensor.
struct LogicalView {
  Dims shape;
  std::vector<std::string> names;
};
LogicalView logical_view(const Op& op, const TensorSpec& spec, const Dims& shape, const Arguments& inputs);

}  // namespace dodona::oracle
