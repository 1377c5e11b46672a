#pragma once

#include "ops/rows/activation/act_and_mul.h"

namespace dodona::ops {

/// out[t,i] = silu(gate[t,i]) * up[t,i],  silu(g) = g / (1 + exp(-g)),  gate and up the halves of input[t,:].
/// Source: sgl-kernel `silu_and_mul` (FlashInfer `act_and_mul_kernel`).
struct SiluAndMul {
  Tensor input, out;
  std::string gate_order = "gate_up", round_activation = "no";

  static constexpr OpInfo info{"silu_and_mul", Category::activation, {Source::sgl_kernel, Source::flashinfer}};
  void describe(auto& op) { describe_act_and_mul(op, *this); }
};

}  // namespace dodona::ops
