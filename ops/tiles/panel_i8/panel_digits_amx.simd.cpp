#include "ops/tiles/panel_i8/panel_digits_amx.h"

#if DODONA_TIER_v4_vnni
#include "ops/tiles/panel_i8/panel_digits_amx_lanes.h"
#include "simd/amx_tiles.h"
#endif

namespace dodona::ops {

template <class Tier>
DigitsUnit DigitsAmxKernel::run() {
#if DODONA_TIER_v4_vnni
  // Measured on a Xeon (Sapphire Rapids).
  return {DODONA_TIER::multiply_digits_by<DODONA_TIER::AmxTiles>, 5};
#else
  return {};
#endif
}
template DigitsUnit DigitsAmxKernel::run<tier::DODONA_TIER>();

}  // namespace dodona::ops
