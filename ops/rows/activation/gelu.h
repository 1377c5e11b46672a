// GELU, by the error function or by tanh, with what is open about it, and as an H200's kernels compute it.
#pragma once

#include "ops/base/bounded.h"

namespace dodona::ops {

/// g * (0.5 * (1 + erf(g / sqrt(2)))) before any rounding, and how far an honest fp32 implementation may be from it.
Bounded gelu(double g);
/// g * (0.5 * (1 + tanh(sqrt(2/pi) * (g + 0.044715 g^3)))); `tanh_error` of tanh is relative.
Bounded gelu_tanh(double g, double tanh_error);
/// Errors of tanh: of an H200's approximate one, as measured; of the instruction, as documented.
inline constexpr double tanh_error_measured = 0x1p-16, tanh_error_documented = 0x1p-11;

/// The same by the functions of an H200, denormals flushed.
float hopper_gelu(float g);
float hopper_gelu_tanh(float g);

}  // namespace dodona::ops
