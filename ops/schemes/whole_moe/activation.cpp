#include "ops/schemes/whole_moe/activation.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/fixed_math.h"
#include "ops/base/bounded.h"
#include "ops/rows/activation/act_and_mul_row.h"
#include "ops/rows/activation/gelu.h"
#include "ops/schemes/whole_moe/weights.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops::whole_moe {
namespace {

/// min(x, limit), or with `both` clamp(x, -limit, limit): neither moves numbers apart.
Bounded limited(Bounded x, double limit, bool both) {
  x.exact = std::min(x.exact, limit);
  if (both) x.exact = std::max(x.exact, -limit);
  return x;
}

/// A curve in golden mode, and how steep it is at most on [g - reach, g + reach].
Bounded value_of(MoeCurve curve, Silu silu, double g) {
  switch (curve) {
    case MoeCurve::silu: return silu(g);
    case MoeCurve::gelu: return gelu(g);
    // CUTLASS has the approximate instruction here.
    case MoeCurve::gelu_tanh: return gelu_tanh(g, tanh_error_documented);
    case MoeCurve::relu: return {std::max(g, 0.0)};
    case MoeCurve::relu2: return rounded_f32({std::max(g, 0.0) * std::max(g, 0.0)});
    case MoeCurve::identity: return {g};
  }
  return {};
}
double steepest(MoeCurve curve, double g, double reach) {
  switch (curve) {
    // |silu''| is at most 1/2, |silu'| below 1.1.
    case MoeCurve::silu: {
      const double s = fixed::sigmoid(g);
      return std::min(1.1, std::fabs(s * (1.0 + g * (1.0 - s))) + 0.5 * reach);
    }
    // Of both |gelu''| is at most 0.8 and |gelu'| below 1.13; their slopes lie within 1/100 of each other.
    case MoeCurve::gelu:
    case MoeCurve::gelu_tanh: {
      const double density = 0.3989422804014327 * fixed::exp(-0.5 * g * g), below = 0.5 * fixed::erfc(-0.7071067811865476 * g);
      return std::min(1.14, std::fabs(below + g * density) + 0.8 * reach + (curve == MoeCurve::gelu_tanh ? 0.01 : 0.0));
    }
    case MoeCurve::relu2: return 2.0 * std::max(0.0, g + reach);
    default: return 1.0;
  }
}

/// curve(alpha g) / alpha of an open g.
Bounded curved(MoeCurve curve, Silu silu, const Bounded& g, double alpha) {
  if (alpha == 0) return g * 0.5;
  const double x = g.exact * alpha, reach = std::fabs(alpha) * g.slack + (alpha == 1 ? 0.0 : f32_eps * std::fabs(x));
  Bounded y = value_of(curve, silu, x);
  if (reach > 0) y.slack += reach * steepest(curve, x, reach);
  y.open = g.open || !std::isfinite(y.exact) || !std::isfinite(y.slack);
  return y * (1.0 / alpha);
}
/// In fast mode.
float curved(MoeCurve curve, float g, float alpha) {
  const double x = static_cast<double>(alpha * g);
  switch (curve) {
    case MoeCurve::silu: return g * static_cast<float>(fixed::sigmoid(x));
    case MoeCurve::gelu: return g * static_cast<float>(0.5 * fixed::erfc(-0.7071067811865476 * x));
    case MoeCurve::gelu_tanh: return g * static_cast<float>(fixed::sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x)));
    case MoeCurve::relu: return std::max(g, 0.0f);
    case MoeCurve::relu2: return std::max(g, 0.0f) * std::max(g, 0.0f);
    case MoeCurve::identity: return g;
  }
  return g;
}

/// The curve as CUTLASS writes it, in fast math.
float curved_on_hopper(MoeCurve curve, float g) {
  namespace gpu = quant::hopper;
  switch (curve) {
    case MoeCurve::silu: return hopper_silu(g);
    case MoeCurve::gelu: return gpu::mul(gpu::mul(0.5f, g), gpu::add(1.0f, gpu::erff(gpu::mul(g, 0x1.6a09e6p-1f))));
    case MoeCurve::gelu_tanh: {
      constexpr auto slope = static_cast<float>(0.7978845608028654), cubic = static_cast<float>(0.044715);
      const float inner = gpu::mul(g, gpu::fma(gpu::mul(gpu::mul(slope, cubic), g), g, slope));
      return gpu::mul(0.5f, gpu::fma(g, gpu::tanhf(inner), g));
    }
    case MoeCurve::relu: return std::fmax(g, 0.0f);
    case MoeCurve::relu2: return gpu::mul(std::fmax(g, 0.0f), std::fmax(g, 0.0f));
    case MoeCurve::identity: return g;
  }
  return g;
}

/// What a build that flushes denormals may have in the place of the number.
Bounded flushable(const Bounded& x) {
  return may_flush(x.exact) ? x.widened(std::fabs(x.exact)) : x;
}

bool has_parameters(const WholeMoe& moe) {
  return moe.alpha.defined() || moe.beta.defined() || moe.limit.defined();
}
std::optional<ActivationKind> kind_of(MoeCurve curve) {
  switch (curve) {
    case MoeCurve::silu: return ActivationKind::silu;
    case MoeCurve::gelu: return ActivationKind::gelu;
    case MoeCurve::gelu_tanh: return ActivationKind::gelu_tanh;
    default: return {};
  }
}

}  // namespace

Bounded activated(const WholeMoe& moe, Silu silu, std::int64_t expert, Bounded gate, Bounded up, bool limit_misplaced) {
  const bool limits_outcome = moe.activation.limits_outcome != limit_misplaced;
  gate = flushable(gate), up = flushable(up);
  if (moe.limit.defined()) {
    if (!limits_outcome) gate = limited(gate, factor_of(moe.limit, expert), false);
    up = limited(up, factor_of(moe.limit, expert), true);
  }
  if (moe.beta.defined()) up = rounded_f32(up + Bounded{static_cast<double>(factor_of(moe.beta, expert))});
  Bounded through = curved(moe.activation.curve, silu, gate, factor_of(moe.alpha, expert));
  if (limits_outcome && moe.limit.defined()) through = limited(through, factor_of(moe.limit, expert), false);
  return rounded_f32(through * up);
}

float activated(const WholeMoe& moe, std::int64_t expert, float gate, float up) {
  const bool limits_outcome = moe.activation.limits_outcome;
  if (moe.limit.defined()) {
    const float limit = factor_of(moe.limit, expert);
    if (!limits_outcome) gate = std::min(gate, limit);
    up = std::max(std::min(up, limit), -limit);
  }
  if (moe.beta.defined()) up += factor_of(moe.beta, expert);
  float through = curved(moe.activation.curve, gate, factor_of(moe.alpha, expert));
  if (limits_outcome && moe.limit.defined()) through = std::min(through, factor_of(moe.limit, expert));
  return through * up;
}

void activate(const WholeMoe& moe, std::int64_t expert, std::span<float> gate, std::span<float> up, std::span<float> out, Isa isa) {
  const std::optional<ActivationKind> kind = kind_of(moe.activation.curve);
  if (has_parameters(moe) || !kind) {
    for (std::size_t j = 0; j < out.size(); ++j) out[j] = activated(moe, expert, gate[j], up[j]);
    return;
  }
  const ActAndMulRow row{.gate = gate.data(),
                         .up = up.data(),
                         .out = out.data(),
                         .next_gate = gate.data(),
                         .next_up = up.data(),
                         .n = static_cast<std::int64_t>(out.size()),
                         .type = DType::f32,
                         .kind = *kind,
                         .writing = Writing{},
                         .round_activation = false};
  dispatch<ActAndMulRowKernel>(isa, row);
}

float activated_on_hopper(const WholeMoe& moe, std::int64_t expert, float gate, float up) {
  namespace gpu = quant::hopper;
  if (!has_parameters(moe)) return gpu::mul(curved_on_hopper(moe.activation.curve, gate), up);
  if (moe.limit.defined()) {
    const float limit = factor_of(moe.limit, expert);
    up = std::max(std::min(up, limit), -limit);
    if (moe.activation.limits_outcome) return gpu::mul(std::min(curved_on_hopper(moe.activation.curve, gate), limit), up);
    gate = std::min(gate, limit);
  }
  const float beta = moe.beta.defined() ? factor_of(moe.beta, expert) : 0.0f;
  const float sigmoid = gpu::rcp(gpu::add(1.0f, gpu::expf(-gpu::mul(gate, factor_of(moe.alpha, expert)))));
  return gpu::mul(gpu::mul(gate, sigmoid), gpu::add(up, beta));
}

Requantizer activated_become(const WholeMoe& moe, std::int64_t expert) {
  if (moe.like_reference && moe.scheme.numbers == MoeNumbers::fp8_blocks) return kept_in_f32;
  Requantizer becomes = moe.scheme.activated_become;
  becomes.encode_scale = encode_scale_of(moe.activated_encode, expert);
  return becomes;
}
Requantizer sums_become(const WholeMoe& moe) {
  return moe.like_reference ? kept_in_f32 : moe.scheme.sums_become;
}

}  // namespace dodona::ops::whole_moe
