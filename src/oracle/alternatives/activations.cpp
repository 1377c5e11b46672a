#include <cmath>

#include "core/fixed_math.h"
#include "oracle/alternatives/families.h"

namespace dodona::oracle::alternatives {
namespace {

float silu(float g, Way way) {
  const float divisor = 1.0f + exp(-g);
  return way == Way::strided ? g * (1.0f / divisor) : g / divisor;
}

float half_of_one_plus(float g, float function, Way way) {
  return way == Way::strided ? (g * 0.5f) * (1.0f + function) : g * (0.5f * (1.0f + function));
}

float gelu(float g, Way way) {
  const float z = g * 0.70710678f;
  return half_of_one_plus(g, static_cast<float>(fixed::erf(static_cast<double>(z))), way);
}

float gelu_tanh(float g, Way way) {
  const float square = g * g;
  const float inner = way == Way::strided ? g * std::fma(0.044715f, square, 1.0f) : g + 0.044715f * (square * g);
  return half_of_one_plus(g, static_cast<float>(fixed::tanh(static_cast<double>(0.79788456f * inner))), way);
}

bool act_and_mul(const Call& call, float (*activation)(float, Way)) {
  if (call.way == Way::tensor_core) return false;
  const Tensor& out = call.tensor("out");
  const std::vector<float> input = floats(call.tensor("input"));
  const auto width = static_cast<std::size_t>(out.size(-1));
  const bool up_first = call.is("gate_order", "up_gate"), rounds = call.is("round_activation", "yes");
  for (std::size_t i = 0; i < input.size() / 2; ++i) {
    const std::size_t first = i / width * 2 * width + i % width;
    const float gate = input[up_first ? first + width : first], up = input[up_first ? first : first + width];
    const float activated = activation(gate, call.way);
    store(out, static_cast<std::int64_t>(i), (rounds ? rounded(out.dtype(), activated) : activated) * up);
  }
  return true;
}

}  // namespace

bool silu_and_mul(const Call& call) {
  return act_and_mul(call, silu);
}
bool gelu_and_mul(const Call& call) {
  return act_and_mul(call, gelu);
}
bool gelu_tanh_and_mul(const Call& call) {
  return act_and_mul(call, gelu_tanh);
}

}  // namespace dodona::oracle::alternatives
