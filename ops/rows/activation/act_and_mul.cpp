#include "ops/rows/activation/act_and_mul.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/fixed_math.h"
#include "core/threads.h"
#include "ops/base/golden_output.h"
#include "ops/base/rows.h"
#include "ops/base/streaming.h"
#include "quant/element.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

/// The two halves of a row.
struct Halves {
  const std::byte* gate;
  const std::byte* up;
};
Halves halves(const ActAndMul& op, std::int64_t row) {
  const int element_bytes = bits(op.input.dtype()) / 8;
  const std::byte* first = row_begin(op.input, row, element_bytes);
  const std::byte* second = first + op.out.size(-1) * element_bytes;
  return op.up_first ? Halves{second, first} : Halves{first, second};
}

/// About what an element costs, in the units of parallel_for.
constexpr double element_cost = 4.0;

void put_product(const GoldenOutput& out, std::int64_t linear, DType type, bool rounded, Bounded a, double up) {
  if (may_flush(a.exact)) a = a.widened(std::fabs(a.exact));
  if (rounded) a = rounded_to(type, a);
  Bounded y = a * up;
  if (!rounded) y = rounded_f32(y);
  if (may_flush(up) || may_flush(y.exact)) y = y.widened(std::fabs(y.exact));
  if (std::isinf(a.exact) && may_flush(up)) y.open = true;
  out.put(linear, y);
}

}  // namespace

std::optional<Refusal> act_and_mul_unsupported(const ActAndMul& op, Mode mode) {
  if (mode != Mode::hopper) return {};
  if (op.up_first) return Refusal{"gate_order", "'up_gate' has no hopper mode: the H200's kernel takes the gate first"};
  if (op.round_activation) return Refusal{"round_activation", "'yes' has no hopper mode: the H200's kernel rounds once"};
  const std::int64_t half_bytes = op.out.size(-1) * bits(op.out.dtype()) / 8;
  if (half_bytes % 16 != 0)
    return Refusal{"input",
                   "has half rows of " + std::to_string(half_bytes) + " bytes: the H200's kernel faults unless they are a multiple of 16"};
  return {};
}

void golden_act_and_mul(const ActAndMul& op, Bounded (*activation)(double), const Exec& exec, Reference* reference) {
  const GoldenOutput out(op.out, reference, "out");
  out.make_open();
  const std::int64_t width = op.out.size(-1);
  const DType type = op.out.dtype();
  parallel_for(exec.threads, row_count(op.out), static_cast<double>(width) * element_cost, [&](std::int64_t t) {
    std::vector<double> gate(static_cast<std::size_t>(width)), up(gate.size());
    const Halves half = halves(op, t);
    quant::to_f64(type, half.gate, gate.data(), width);
    quant::to_f64(type, half.up, up.data(), width);
    for (std::size_t i = 0; i < gate.size(); ++i)
      put_product(out, t * width + static_cast<std::int64_t>(i), type, op.round_activation, activation(gate[i]), up[i]);
  });
}

void golden_quick_gelu(const ActAndMul& op, const Exec& exec, Reference* reference) {
  const auto activation = [](double gate) {
    constexpr double slope = 1.702f;
    const double value = gate * fixed::sigmoid(slope * gate);
    // The exponential's argument and itself, the sum, the division, two products.
    return Bounded{value, (8 + 4 * slope * std::fabs(gate)) * f32_eps * std::fabs(value)};
  };
  golden_act_and_mul(op, activation, exec, reference);
}

void hopper_act_and_mul(const ActAndMul& op, float (*activation)(float), const Exec& exec) {
  const std::int64_t width = op.out.size(-1);
  const DType type = op.out.dtype();
  parallel_for(exec.threads, row_count(op.out), static_cast<double>(width) * element_cost, [&](std::int64_t t) {
    std::vector<float> gate(static_cast<std::size_t>(width)), up(gate.size());
    const Halves half = halves(op, t);
    quant::to_f32(type, half.gate, gate.data(), width);
    quant::to_f32(type, half.up, up.data(), width);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const float active = activation(gate[i]);
      gate[i] = quant::hopper::mul(op.round_activation ? static_cast<float>(quant::round_to(type, active)) : active, up[i]);
    }
    quant::from_f32(type, gate.data(), row_begin_mutable(op.out, t, bits(type) / 8), width);
  });
}

void fast_act_and_mul(const ActAndMul& op, ActivationKind kind, const Exec& exec) {
  const std::int64_t rows = row_count(op.out), width = op.out.size(-1);
  const DType type = op.out.dtype();
  const int element_bytes = bits(type) / 8;
  const double cost = static_cast<double>(width) * element_cost;
  parallel_for_rows(exec.threads, rows, cost, worth_streaming(op.out), width * element_bytes, [&](std::int64_t t, Writing writing) {
    const Halves half = halves(op, t), next = halves(op, std::min(t + 1, rows - 1));
    const ActAndMulRow row{.gate = half.gate,
                           .up = half.up,
                           .out = row_begin_mutable(op.out, t, element_bytes),
                           .next_gate = next.gate,
                           .next_up = next.up,
                           .n = width,
                           .type = type,
                           .kind = kind,
                           .writing = writing,
                           .round_activation = op.round_activation};
    dispatch<ActAndMulRowKernel>(exec.isa, row);
  });
}

}  // namespace dodona::ops
