// --layers: a layer, or a range of them.
#pragma once

#include <cstdint>
#include <string>

namespace dodona::tools {

struct LayerRange {
  std::int64_t first = 0, last = 0;  ///< both included
};
/// "3", or "0..3". Throws Error (bad_option).
LayerRange parse_layers(const std::string& text);

}  // namespace dodona::tools
