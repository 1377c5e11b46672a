// Offsets of requests that lie one behind the other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dodona/tensor.h"

namespace dodona::ops {

/// Throws bad_value unless i32 offsets begin at 0, do not fall and end at `end`, or where not `whole` before that. `of`: what there are
/// `end` of, in words.
void check_offsets(const Tensor& offsets, std::string_view name, std::int64_t end, const std::string& of, bool whole);

/// "the tokens of q [3, 4, 64]".
std::string tokens_of(std::string_view name, const Tensor& t);

}  // namespace dodona::ops
