#include "ops/softmax/fast/attend_amx.h"

#if DODONA_TIER_v4_vnni
#include "ops/softmax/fast/attend_amx_lanes.h"
#include "simd/amx_tiles.h"
#endif

namespace dodona::ops {

template <class Tier>
AttendTiles AttendAmxKernel::run() {
#if DODONA_TIER_v4_vnni
  return {DODONA_TIER::AttendByTiles<DODONA_TIER::AmxTiles>::run};
#else
  return {};
#endif
}
template AttendTiles AttendAmxKernel::run<tier::DODONA_TIER>();

}  // namespace dodona::ops
