// One step of a tensor core by its definition (unit.h): readable, and what everything faster is held against.
#pragma once

#include <span>

#include "quant/tensor_core/decode.h"

namespace dodona::quant::tensor_core {

/// One step, as unit.h defines it, for any number of products up to 32.
float mma_step(const MmaSpec& spec, std::span<const Factor> a, std::span<const Factor> b, float accumulator);

}  // namespace dodona::quant::tensor_core
