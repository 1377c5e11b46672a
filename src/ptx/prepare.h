// A launch, checked.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ptx/machine.h"

namespace dodona::ptx {

struct Prepared {
  LaunchState state;
  std::vector<std::vector<std::uint8_t>> written;
  std::uint64_t first = 0, last = 0;  ///< blocks
  int threads = 1;
};

Prepared prepare(const Program& program, std::string_view name, const Launch& launch);

}  // namespace dodona::ptx
