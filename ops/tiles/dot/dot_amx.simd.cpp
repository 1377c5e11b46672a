#include "ops/tiles/dot/dot_amx.h"

#if DODONA_TIER_v4_vnni
#include "ops/tiles/dot/dot_amx_lanes.h"
#include "simd/amx_tiles.h"
#endif

namespace dodona::ops {

template <class Tier>
DotUnit DotAmxKernel::run() {
#if DODONA_TIER_v4_vnni
  using Cpu = DODONA_TIER::DotByTiles<DODONA_TIER::AmxTiles>;
  return {Cpu::prepare, Cpu::multiply};
#else
  return {};
#endif
}
template DotUnit DotAmxKernel::run<tier::DODONA_TIER>();

}  // namespace dodona::ops
