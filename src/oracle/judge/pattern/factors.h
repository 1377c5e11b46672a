// Numbers that are golden's, changed all alike: times a factor, plus an offset, so many powers of two off, counted otherwise.
#pragma once

#include <optional>
#include <string>

#include "oracle/judge/pattern/samples.h"

namespace dodona::oracle::pattern {

/// Whole numbers that are golden's, counted otherwise; or that reach only so far.
std::optional<std::string> of_whole_numbers(const Samples& samples);
/// Running sums that begin anew, or counts that are not added up: differences of golden's.
std::optional<std::string> sums_begun_anew(const std::vector<std::int64_t>& failing, const Tensor& golden, const Tensor& actual);
/// Rows that are golden's, each times a factor of its own: a scale per row, or token, that is wrong or not applied.
std::optional<std::string> factor_of_each_row(const Samples& samples, DType type, std::int64_t width);
/// Rows that fail in a part of their columns, where a factor of the row's own has come in: another row's, as behind a missing barrier.
std::optional<std::string> factor_of_row_parts(const Samples& samples, DType type, std::int64_t width);
/// `width`: numbers of a row, whose mean may be taken wrongly.
std::optional<std::string> constant_factor(const Samples& samples, DType type, std::int64_t width);
/// Scales that are powers of two: nearly all that fail are so many powers off.
std::optional<std::string> powers_off(const Samples& samples, DType type);
std::optional<std::string> constant_offset(const Samples& samples, DType type);

}  // namespace dodona::oracle::pattern
