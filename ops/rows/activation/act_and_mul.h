// What silu_and_mul, gelu_and_mul and gelu_tanh_and_mul share: a row is split in halves, the activation of one times the other.
#pragma once

#include <string>

#include "core/define.h"
#include "ops/base/bounded.h"
#include "ops/rows/activation/act_and_mul_row.h"

namespace dodona::ops {

using enum DType;

/// The schema of all three; `Op` has input, out, gate_order and round_activation.
template <class Op>
void describe_act_and_mul(auto& op, Op& fields) {
  op.signature("input, out");
  op.in("input", fields.input, {bf16, f16, f32}, "T... 2*D").doc("gate and up, halves of each row");
  op.choice("gate_order", fields.gate_order, {"gate_up", "up_gate"})
      .doc("which half goes through the activation: the first (gate_up), or the second, as TensorRT-LLM's fused MoE has them")
      .dialect("trtllm", "up_gate");
  op.choice("round_activation", fields.round_activation, {"no", "yes"})
      .doc("yes: the activation is rounded to the type before the product, which rounds again, as eager references do")
      .dialect("deepseek", "yes");
  op.out("out", fields.out, same_as("input"), "T... D").doc("act(gate) * up, rounded once");
  op.rows_independent("T");
}

/// One call, whatever the activation.
struct ActAndMul {
  const Tensor& input;
  const Tensor& out;
  bool up_first, round_activation;
};
template <class Op>
ActAndMul act_and_mul(const Op& op) {
  return {op.input, op.out, op.gate_order == "up_gate", op.round_activation == "yes"};
}

/// out = activation(gate) * up; the activation's slack is that of its fp32 value. Slack of the product: |up| times that of the activation;
/// one rounding (none where both factors have been rounded to 16 bits, for their product is exact); what builds that flush denormals lose
/// of either factor and of the product. With round_activation the activation's slack is the distance to the farthest neighbour that its
/// rounding may fall to. Open where one factor is infinite and the other may or may not have become zero: infinity or NaN.
void golden_act_and_mul(const ActAndMul& op, Bounded (*activation)(double gate), const Exec& exec, Reference* reference);

/// No kernel of the H200 has the other recipes, and on half rows that are no multiple of 16 bytes its kernels fault.
std::optional<Refusal> act_and_mul_unsupported(const ActAndMul& op, Mode mode);
template <class Op>
std::optional<Refusal> unsupported_act_and_mul(const Op& op, Mode mode) {
  return act_and_mul_unsupported(act_and_mul(op), mode);
}
/// The defect of the upstream kernels of all three; it makes no outputs that could be recognised.
template <class Op>
DefectOf<Op> misaligned_half_row() {
  return {
      "misaligned-half-row", "out",
      "half the row must be a multiple of 8 for 16-bit types: otherwise a misaligned-address fault; the Python check looks at the whole "
      "row only"};
}

/// With gate * sigmoid(1.702 gate), the quick GELU of other models, in the activation's place.
void golden_quick_gelu(const ActAndMul& op, const Exec& exec, Reference* reference);
template <class Op>
MistakeOf<Op> quick_gelu() {
  return {"quick-gelu", "the activation is that of other models, gate * sigmoid(1.702 gate)",
          [](const Op& op, const Exec& exec, Reference* reference) { golden_quick_gelu(act_and_mul(op), exec, reference); }};
}

/// As the H200's kernels: one rounding, or another of the activation before; fp32 operations that flush denormals.
void hopper_act_and_mul(const ActAndMul& op, float (*activation)(float gate), const Exec& exec);

void fast_act_and_mul(const ActAndMul& op, ActivationKind kind, const Exec& exec);

}  // namespace dodona::ops
