// The gate's activation, with what is open about it, and as an H200's kernels compute it.
#pragma once

#include "ops/base/bounded.h"

namespace dodona::ops {

/// g / (1 + e^-g) before any rounding, and how far an honest fp32 implementation may be from it.
Bounded silu(double g);
/// A mistake of kernels: g times a sigmoid made of the approximate tanh, which knows eleven bits.
Bounded silu_from_tanh(double g);
/// The same by the approximate functions of an H200, denormals flushed.
float hopper_silu(float g);

}  // namespace dodona::ops
