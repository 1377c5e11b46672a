// fp16 sums of matrices, two in a register, as fp32 numbers [8][16] and back.
#pragma once

#include "ptx/machine.h"
#include "ptx/products.h"
#include "quant/half.h"

namespace dodona::ptx {

/// Two registers.
inline void spread_halves(Machine& m, const Slot* slots, float* sums) {
  for (int r = 0; r < 4; ++r)
    for (int lane = 0; lane < warp_lanes; ++lane) {
      const std::uint32_t pair = m.narrow(slots[r >> 1])[lane];
      sums[sum_offset(r) + fragment_sum(lane)] = quant::f16_to_f32(static_cast<std::uint16_t>(r & 1 ? pair >> 16 : pair));
    }
}
inline void gather_halves(Machine& m, const float* sums, const Slot* slots) {
  for (int r = 0; r < 4; ++r)
    for (int lane = 0; lane < warp_lanes; ++lane) {
      std::uint32_t& pair = m.narrow(slots[r >> 1])[lane];
      const std::uint32_t code = quant::f32_to_f16(sums[sum_offset(r) + fragment_sum(lane)]);
      pair = r & 1 ? (pair & 0xFFFFu) | code << 16 : code;
    }
}

}  // namespace dodona::ptx
