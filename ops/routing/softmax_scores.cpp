#include "ops/routing/softmax_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/fixed_math.h"
#include "core/flaw.h"

namespace dodona::ops {
namespace {

/// Below this every fp32 implementation has zero.
constexpr double certainly_zero = 0x1p-151;

/// e^d, d <= 0: off by |d| in the difference's rounding, 1.25|d| + 4 units of 2^-24 in the function (see sigmoid_interval), and by what is
/// open of the logit. Below 2^-126 it may be flushed.
Interval exp_interval(double d, double value, double logit_slack) {
  const double error = logit_slack + (2.25 * std::fabs(d) + 4.0) * f32_eps;
  const double high = value * fixed::exp(error), low = value * fixed::exp(-error);
  if (!(high >= certainly_zero)) return {0.0, 0.0};
  return {low < 2 * flush_floor ? 0.0 : low, high};
}

}  // namespace

Bounded softmax_logit(float x, float cap, float bias) {
  if (cap == 0) return {static_cast<double>(x + bias)};
  const double capped = cap * fixed::tanh(static_cast<double>(x) / cap), sum = capped + bias;
  return {sum, std::fabs(capped) * (0x1p-11 + 6.0 * f32_eps) + std::fabs(sum) * f32_eps + (std::fabs(cap) + 1.0) * flush_floor};
}

SoftmaxScores::SoftmaxScores(std::span<const Bounded> logits, bool shifted) {
  double most = -std::numeric_limits<double>::infinity();
  for (const Bounded& x : logits) {
    defined_ = defined_ && x.exact < std::numeric_limits<double>::infinity();
    most = std::max(most, x.exact);
  }
  defined_ = defined_ && std::isfinite(most);
  for (const Bounded& x : logits) {
    if (!shifted && defined_) {
      const double value = unshifted_exponential(x.exact), error = (2.25 * std::fabs(x.exact) + 8.0) * f32_eps + x.slack;
      scores_.add(value, std::isfinite(value) ? Interval{value * (1 - error), value * (1 + error)} : Interval{value, value});
      continue;
    }
    const double d = x.exact - most, value = defined_ ? fixed::exp(d) : std::numeric_limits<double>::quiet_NaN();
    scores_.add(value, std::isfinite(d) ? exp_interval(d, value, x.slack) : Interval{value, value});
  }
}

Interval SoftmaxScores::key(std::size_t e) const {
  const auto product = [&](double y) { return y / scores_.sum; };
  const double low = product(scores_.open[e].low) * (1.0 - 2.0 * f32_eps), high = product(scores_.open[e].high) * (1.0 + 2.0 * f32_eps);
  if (!(high >= certainly_zero)) return {0.0, 0.0};
  return {low < 2 * flush_floor ? 0.0 : low, high};
}

/// Beside what ChosenScores has: a rounding each of the share, of the smallest sum's share, and of the product with a reciprocal; shares
/// that are flushed, times the reciprocal.
std::vector<Bounded> SoftmaxScores::renormalized(std::span<const std::int64_t> chosen) const {
  ChosenScores some;
  for (const std::int64_t e : chosen) some.add(scores_.exact[static_cast<std::size_t>(e)], scores_.open[static_cast<std::size_t>(e)]);
  const double flushed = 2.0 * flush_floor * static_cast<double>(scores_.exact.size());
  std::vector<Bounded> weights;
  for (std::size_t k = 0; k < chosen.size(); ++k) {
    const Bounded weight = some.weight(k);
    weights.push_back(weight.widened(3.0 * f32_eps * std::fabs(weight.exact) + flushed));
  }
  return weights;
}

}  // namespace dodona::ops
