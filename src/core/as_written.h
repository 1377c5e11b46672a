// What a call wrote in place, for Op::condition: its arguments hold such tensors as they were before the call.
#pragma once

#include <string>
#include <string_view>

namespace dodona {

/// The record in which a judge leaves the numbers of an output that is written in place, as `exact`.
inline std::string as_written(std::string_view output) {
  return std::string(output) + " as written";
}

}  // namespace dodona
