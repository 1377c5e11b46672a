// The gate's activation, with what is open about it, and as an H200's kernels compute it.
#pragma once

#include "dodona/exec.h"
#include "ops/base/bounded.h"

namespace dodona::ops {

/// g / (1 + e^-g) before any rounding, and how far an honest fp32 implementation may be from it.
Bounded silu(double g);
/// What golden mode takes: silu, or where it is asked for that flaw g times a sigmoid made of the approximate tanh, which knows eleven
/// bits.
using Silu = Bounded (*)(double g);
Silu golden_silu(const Exec& exec);
/// The same by the approximate functions of an H200, denormals flushed.
float hopper_silu(float g);

}  // namespace dodona::ops
