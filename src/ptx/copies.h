// What a bulk copy moves.
#pragma once

#include <functional>

#include "ptx/machine.h"

namespace dodona::ptx {

/// Some of it: generic addresses, shared ones with their window. Where nothing `exists` at `from`, the box's filling is copied.
struct CopiedBytes {
  std::uint64_t to = 0, from = 0;
  std::uint32_t bytes = 0;
  bool exists = true;
};
/// Of an instruction of the family `bulk`, in order.
void for_copied(Machine& m, const Instruction& i, int lane, const std::function<void(const CopiedBytes&)>& body);

}  // namespace dodona::ptx
