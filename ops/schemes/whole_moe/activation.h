// What becomes of gate and up between the two products of a whole mixture of experts.
#pragma once

#include <cstdint>

#include "ops/rows/silu.h"
#include "ops/schemes/whole_moe.h"

namespace dodona::ops::whole_moe {

/// g' / (1 + exp(-alpha g')) * (u' + beta): in golden mode, in fast mode, and as fast-math builds have it on an H200.
/// `limit_behind_silu`, a mistake: of the gate.
Bounded activated(const WholeMoe& moe, Silu silu, std::int64_t expert, Bounded gate, Bounded up, bool limit_behind_silu);
float activated(const WholeMoe& moe, std::int64_t expert, float gate, float up);
float activated_on_hopper(const WholeMoe& moe, std::int64_t expert, float gate, float up);

/// Upstream's reference of fp8 with blocks quantizes nothing.
Requantizer activated_become(const WholeMoe& moe, std::int64_t expert);
Requantizer sums_become(const WholeMoe& moe);

}  // namespace dodona::ops::whole_moe
