// Numbers that are golden's, in another place.
#pragma once

#include <optional>
#include <string>

#include "oracle/judge/pattern/samples.h"

namespace dodona::oracle::pattern {

/// Nearly all samples hold golden's number from elsewhere: shifted, swapped, transposed.
std::optional<std::string> displaced(const Samples& samples, const Tensor& golden, const Tensor& actual, const Dims& shape);
/// Rows of golden that lie where another stride of one dimension puts them.
std::optional<std::string> rows_at_another_stride(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual,
                                                  const Dims& shape);
/// Rows that fail and are other rows of golden: each of them, and none its own.
std::optional<std::string> permuted_rows(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual);
/// Indices of one dimension (columns, rows, heads) that hold golden's of others, at nearly all places across it that fail.
std::optional<std::string> indices_elsewhere(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual,
                                             const Dims& shape);

}  // namespace dodona::oracle::pattern
