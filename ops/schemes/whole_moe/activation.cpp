#include "ops/schemes/whole_moe/activation.h"

#include <algorithm>
#include <cmath>

#include "core/fixed_math.h"
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

/// |silu'| on [g - reach, g + reach]: |silu''| is at most 1/2, |silu'| below 1.1.
double steepest_silu(double g, double reach) {
  const double s = fixed::sigmoid(g);
  return std::min(1.1, std::fabs(s * (1.0 + g * (1.0 - s))) + 0.5 * reach);
}

/// g / (1 + exp(-alpha g)) of an open g: silu(alpha g) / alpha.
Bounded gated(Silu silu, const Bounded& g, double alpha) {
  if (alpha == 0) return g * 0.5;
  const double x = g.exact * alpha, reach = std::fabs(alpha) * g.slack + (alpha == 1 ? 0.0 : f32_eps * std::fabs(x));
  Bounded s = silu(x);
  s.slack += reach * steepest_silu(x, reach);
  s.open = g.open || !std::isfinite(s.exact) || !std::isfinite(s.slack);
  return s * (1.0 / alpha);
}

}  // namespace

Bounded activated(const WholeMoe& moe, Silu silu, std::int64_t expert, Bounded gate, Bounded up, bool limit_behind_silu) {
  if (moe.limit.defined()) {
    if (!limit_behind_silu) gate = limited(gate, factor_of(moe.limit, expert), false);
    up = limited(up, factor_of(moe.limit, expert), true);
  }
  if (moe.beta.defined()) up = rounded_f32(up + Bounded{static_cast<double>(factor_of(moe.beta, expert))});
  Bounded through = gated(silu, gate, factor_of(moe.alpha, expert));
  if (limit_behind_silu && moe.limit.defined()) through = limited(through, factor_of(moe.limit, expert), false);
  return rounded_f32(through * up);
}

float activated(const WholeMoe& moe, std::int64_t expert, float gate, float up) {
  const float alpha = factor_of(moe.alpha, expert);
  if (moe.limit.defined()) {
    const float limit = factor_of(moe.limit, expert);
    gate = std::min(gate, limit);
    up = std::max(std::min(up, limit), -limit);
  }
  if (moe.beta.defined()) up += factor_of(moe.beta, expert);
  return gate * static_cast<float>(fixed::sigmoid(static_cast<double>(alpha * gate))) * up;
}

float activated_on_hopper(const WholeMoe& moe, std::int64_t expert, float gate, float up) {
  namespace gpu = quant::hopper;
  if (!moe.alpha.defined() && !moe.beta.defined() && !moe.limit.defined()) return gpu::mul(hopper_silu(gate), up);
  if (moe.limit.defined()) {
    const float limit = factor_of(moe.limit, expert);
    gate = std::min(gate, limit);
    up = std::max(std::min(up, limit), -limit);
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
