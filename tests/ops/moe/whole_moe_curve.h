// Activations of whole mixtures of experts, in double, as their definitions have them.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "dodona/op.h"

namespace dodona::helpers {

inline double curved(const std::string& curve, double g) {
  if (curve == "gelu") return 0.5 * g * (1.0 + std::erf(g / std::sqrt(2.0)));
  if (curve == "gelu_tanh") return 0.5 * g * (1.0 + std::tanh(std::sqrt(2.0 / std::acos(-1.0)) * (g + 0.044715 * g * g * g)));
  if (curve == "relu") return std::max(g, 0.0);
  if (curve == "relu2") return std::pow(std::max(g, 0.0), 2);
  if (curve == "identity") return g;
  return g / (1.0 + std::exp(-g));
}

/// What a call's attributes name.
struct CurveOfCall {
  std::string name = "silu";
  bool gated = true, limits_outcome = false;

  explicit CurveOfCall(const Arguments& a) {
    if (const AttrValue* const value = a.find_attr("gate_activation")) name = std::get<std::string>(*value);
    if (const AttrValue* const value = a.find_attr("gated")) gated = std::get<bool>(*value);
    if (const AttrValue* const value = a.find_attr("limited")) limits_outcome = std::get<std::string>(*value) == "activated";
  }
  std::int64_t halves() const { return gated ? 2 : 1; }
};

}  // namespace dodona::helpers
