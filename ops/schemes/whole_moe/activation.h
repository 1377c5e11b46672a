// What becomes of gate and up between the two products of a whole mixture of experts.
#pragma once

#include <cstdint>
#include <span>

#include "ops/rows/activation/silu.h"
#include "ops/schemes/whole_moe.h"

namespace dodona::ops::whole_moe {

/// curve(alpha g') / alpha * (u' + beta): in golden mode, in fast mode, and (of silu) as fast-math builds have it on an H200. Where nothing
/// multiplies the gate, up is what its factor would be. `limit_misplaced`: a mistake.
Bounded activated(const WholeMoe& moe, Silu silu, std::int64_t expert, Bounded gate, Bounded up, bool limit_misplaced);
float activated(const WholeMoe& moe, std::int64_t expert, float gate, float up);
/// A row in fast mode.
void activate(const WholeMoe& moe, std::int64_t expert, std::span<float> gate, std::span<float> up, std::span<float> out, Isa isa);
float activated_on_hopper(const WholeMoe& moe, std::int64_t expert, float gate, float up);

/// Upstream's reference of fp8 with blocks quantizes nothing.
Requantizer activated_become(const WholeMoe& moe, std::int64_t expert);
Requantizer sums_become(const WholeMoe& moe);

}  // namespace dodona::ops::whole_moe
