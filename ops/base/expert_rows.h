// Rows sorted by expert, and the offsets that say whose they are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "dodona/error.h"
#include "dodona/tensor.h"

namespace dodona::ops {

/// The elements of a contiguous i32 tensor.
inline std::span<const std::int32_t> ints_of(const Tensor& t) {
  return {t.as<std::int32_t>(), static_cast<std::size_t>(t.elements())};
}

[[noreturn]] inline void bad_offset(const char* argument, std::size_t i, std::int64_t value, const std::string& expected) {
  throw Error(ErrorCode::bad_value, "", argument,
              "holds " + std::to_string(value) + " at element " + std::to_string(i) + ", expected " + expected);
}

/// Throws unless the offsets begin at 0, rise, and stay within `rows`.
inline void require_expert_offsets(const char* argument, std::span<const std::int32_t> offsets, std::int64_t rows) {
  std::int64_t least = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    if (i == 0 && offsets[i] != 0) bad_offset(argument, i, offsets[i], "0");
    if (offsets[i] < least || offsets[i] > rows)
      bad_offset(argument, i, offsets[i], "rising offsets: from " + std::to_string(least) + " to the row count " + std::to_string(rows));
    least = offsets[i];
  }
}

/// Throws unless group i of `rows` rows may have its scales at row `offset` of a matrix of `scale_rows` rows in tiles of 128, where those
/// of the groups before end at row `least`.
inline void require_scale_offset(const char* argument, std::size_t i, std::int64_t offset, std::int64_t rows, std::int64_t least,
                                 std::int64_t scale_rows) {
  const std::int64_t room = (rows + 127) / 128 * 128;
  if (offset % 128 != 0) bad_offset(argument, i, offset, "a multiple of 128");
  if (offset < least || offset > scale_rows - room)
    bad_offset(argument, i, offset,
               "from " + std::to_string(least) + " with " + std::to_string(room) + " rows to the scales' " + std::to_string(scale_rows));
}

}  // namespace dodona::ops
