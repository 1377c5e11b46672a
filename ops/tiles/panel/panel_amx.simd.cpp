#include "ops/tiles/panel/panel_amx.h"

#if DODONA_TIER_v4_vnni
#include "ops/tiles/panel/panel_amx_lanes.h"
#include "simd/amx_tiles.h"
#endif

namespace dodona::ops {

template <class Tier>
PanelUnit PanelAmxKernel::run() {
#if DODONA_TIER_v4_vnni
  // All processors with tiles have had VBMI, which codes are widened with.
  if (!__builtin_cpu_supports("avx512vbmi")) return {};
  using Cpu = DODONA_TIER::PanelMatrixUnit<DODONA_TIER::AmxTiles>;
  // Measured on a Xeon (Sapphire Rapids).
  return {Cpu::prepare, Cpu::multiply, 1, 3};
#else
  return {};
#endif
}
template PanelUnit PanelAmxKernel::run<tier::DODONA_TIER>();

}  // namespace dodona::ops
