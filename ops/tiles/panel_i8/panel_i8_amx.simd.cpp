#include "ops/tiles/panel_i8/panel_i8_amx.h"

#if DODONA_TIER_v4_vnni
#include "ops/tiles/panel_i8/panel_i8_amx_lanes.h"
#include "simd/amx_tiles.h"
#endif

namespace dodona::ops {

template <class Tier>
I8MatrixUnit I8AmxKernel::run() {
#if DODONA_TIER_v4_vnni
  using Cpu = DODONA_TIER::MatrixUnit<DODONA_TIER::AmxTiles>;
  // Measured on a Xeon (Sapphire Rapids).
  return {Cpu::prepare, Cpu::multiply, {2, 5, 256}, {3, 5, i8_amx_scaled_rows}, {5, 5, i8_amx_scaled_rows}};
#else
  return {};
#endif
}
template I8MatrixUnit I8AmxKernel::run<tier::DODONA_TIER>();

}  // namespace dodona::ops
