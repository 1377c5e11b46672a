#pragma once

#include "ops/rows/activation/act_and_mul.h"

namespace dodona::ops {

/// out[t,i] = gelu(gate[t,i]) * up[t,i],  gelu(g) = g * 0.5 * (1 + tanh(sqrt(2/pi) * (g + 0.044715 * g^3))),  gate and up the halves of
/// input[t,:].
/// Source: sgl-kernel `gelu_tanh_and_mul` (FlashInfer `act_and_mul_kernel`).
struct GeluTanhAndMul {
  Tensor input, out;
  std::string gate_order = "gate_up", round_activation = "no", tanh_error = "measured";

  static constexpr OpInfo info{"gelu_tanh_and_mul", Category::activation, {Source::sgl_kernel, Source::flashinfer}};
  void describe(auto& op) {
    describe_act_and_mul(op, *this);
    op.choice("tanh_error", tanh_error, {"measured", "documented"})
        .doc(
            "error of the approximate tanh that the budget allows: 2^-16, above the 1.12e-5 measured over all arguments of an H200, or the "
            "2^-11 that the instruction set documents for every device");
  }
};

}  // namespace dodona::ops
