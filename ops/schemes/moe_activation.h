// The activation of a whole mixture of experts as a part of an op's schema.
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>

#include "core/define.h"
#include "ops/schemes/whole_moe.h"

namespace dodona::ops {

inline constexpr std::array<const char*, 6> moe_curves{"silu", "gelu", "gelu_tanh", "relu", "relu2", "identity"};

/// `Op` has activation and gated, and may have limited.
template <class Op>
void describe_moe_activation(auto& op, Op& fields) {
  op.choice("gate_activation", fields.activation, {"silu", "gelu", "gelu_tanh", "relu", "relu2", "identity"})
      .doc("what the gate goes through: upstream's Swiglu, Geglu and GegluTanh with up, Silu, Gelu, Relu, Relu2 and Identity without");
  op.attr("gated", fields.gated)
      .recipe()
      .doc("up multiplies the activated gate; otherwise the first product has I rows, those of the gate");
  if constexpr (requires { fields.limited; })
    op.choice("limited", fields.limited, {"gate", "activated"})
        .doc("what swiglu_limit bounds beside up: the gate, or (upstream's SwigluStep) what it becomes");
}

template <class Op>
MoeActivation moe_activation(const Op& op) {
  const auto* const found = std::find(moe_curves.begin(), moe_curves.end(), op.activation);
  MoeActivation activation{.curve = static_cast<MoeCurve>(found - moe_curves.begin()), .gated = op.gated};
  if constexpr (requires { op.limited; }) activation.limits_outcome = op.limited == "activated";
  return activation;
}

struct MoeParameter {
  const char* name;
  const Tensor* tensor;
  bool read;  ///< by this activation
};
/// Throws where there is a parameter that the activation does not read.
template <class Op>
void check_moe_parameters(const Op& op, std::initializer_list<MoeParameter> parameters) {
  for (const MoeParameter& parameter : parameters)
    if (parameter.tensor->defined() && !parameter.read)
      throw Error(ErrorCode::bad_value, "", parameter.name,
                  "is there, expected none with gate_activation=" + op.activation + (op.gated ? "" : " and gated=false") +
                      ", which does not read it");
}

}  // namespace dodona::ops
