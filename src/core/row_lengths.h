// How a schema says that only the first rows of each group count.
#pragma once

#include <string>
#include <string_view>

#include "dodona/op.h"

namespace dodona {

/// Whether `lengths` holds, for each of `groups`, how many of `rows` count: one number a group, at most as many as there are rows.
inline bool holds_row_lengths(const TensorSpec& lengths, std::string_view groups, std::string_view rows) {
  return lengths.shape == groups && lengths.bound == std::string(rows) + "+1";
}

}  // namespace dodona
