#pragma once

#include "ops/rows/activation/act_and_mul.h"

namespace dodona::ops {

/// out[t,i] = gelu(gate[t,i]) * up[t,i],  gelu(g) = g * 0.5 * (1 + erf(g / sqrt(2))),  gate and up the halves of input[t,:].
/// Source: sgl-kernel `gelu_and_mul` (FlashInfer `act_and_mul_kernel`).
struct GeluAndMul {
  Tensor input, out;
  std::string gate_order = "gate_up", round_activation = "no";

  static constexpr OpInfo info{"gelu_and_mul", Category::activation, {Source::sgl_kernel, Source::flashinfer}};
  void describe(auto& op) { describe_act_and_mul(op, *this); }
};

}  // namespace dodona::ops
