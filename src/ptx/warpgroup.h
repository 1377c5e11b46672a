// What wgmma multiplies, for traces.
#pragma once

#include <vector>

#include "ptx/machine.h"

namespace dodona::ptx {

/// Of a wgmma.mma_async, for the current warp. Numbers of `bytes` each; a line has 32 bytes of them.
struct WarpgroupProduct {
  int columns = 0, bytes = 0;
  bool adds = false, half_sums = false, a_in_registers = false;
  const Slot *sums = nullptr, *a = nullptr;  ///< registers: columns / 2 (or / 4) of sums, then four of A
  /// Shared addresses of the numbers of a line of A (0 to 15, of this warp) or of B, along K.
  std::vector<std::uint64_t> a_line(Machine& m, const Instruction& i, int line) const;
  std::vector<std::uint64_t> b_line(Machine& m, const Instruction& i, int line) const;
};
/// False: it is no product (a fence, a wait).
bool describe(Machine& m, const Instruction& i, WarpgroupProduct& product);

}  // namespace dodona::ptx
