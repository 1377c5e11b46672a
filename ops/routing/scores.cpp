#include "ops/routing/scores.h"

#include "ops/base/rows.h"

namespace dodona::ops {
namespace {

/// Beyond this tanh(x/2) is 1 or -1 in fp32 for every implementation.
constexpr float saturated = 20.0f;

}  // namespace

std::vector<float> router_row(const Tensor& t, std::int64_t row, std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  quant::to_f32(t.dtype(), row_begin(t, row, bits(t.dtype()) / 8), values.data(), n);
  return values;
}

/// e^-x is off by |x| (the rounded product x*log2(e), whose constant adds 0.22) and 4 units of 2^-24 (2^-22: ex2.approx, or 2 units of
/// expf), which reaches 1/(1+e) by the share e/(1+e); then one rounding of the sum, 2 of the reciprocal (1 unit). Below 2^-126 it may be
/// flushed.
Interval sigmoid_interval(DType type, double x) {
  const double s = fixed::sigmoid(x);
  if (!(s >= 0x1p-151)) return {static_cast<float>(s), static_cast<float>(s)};  // NaN, or zero in fp32
  // e^-x below 2^-25: every implementation's 1/(1+e) is exactly 1.
  if (x > 17.329) return {1.0, 1.0};
  const double relative = (fixed::sigmoid(-x) * (1.25 * std::fabs(x) + 4.0) + 3.0) * f32_eps;
  const double low = s * (1.0 - relative), high = std::min(1.0, s * (1.0 + relative));
  return {rounded_score(type, static_cast<float>(low < 2 * flush_floor ? 0.0 : low)), rounded_score(type, static_cast<float>(high))};
}

float tanh_sigmoid(float x) {
  if (std::fabs(x) > saturated) return x > 0 ? 1.0f : 0.0f;
  const auto t = static_cast<float>(fixed::tanh(0.5 * static_cast<double>(x)));
  return 0.5f * t + 0.5f;
}

/// tanh within 2 ulp of numbers up to 1, halved, and the rounding of the sum.
Interval tanh_sigmoid_interval(float x) {
  const double s = tanh_sigmoid(x);
  if (std::isnan(s) || std::fabs(x) > saturated) return {s, s};
  constexpr double error = 1.5 * 0x1p-23;
  const auto number = [](double value) { return static_cast<double>(static_cast<float>(value)); };
  return {number(std::max(0.0, s - error)), number(std::min(1.0, s + error))};
}

Interval sum_interval(DType type, Interval a, Interval b) {
  const auto flushable = [](Interval x) {
    if (std::fabs(x.low) < flush_floor) x.low = std::min(x.low, 0.0);
    if (std::fabs(x.high) < flush_floor) x.high = std::max(x.high, 0.0);
    return x;
  };
  a = flushable(a);
  b = flushable(b);
  const auto sum = [&](double x, double y) { return static_cast<double>(as_key(rounded_score(type, static_cast<float>(x + y)))); };
  return flushable({sum(a.low, b.low), sum(a.high, b.high)});
}

void ChosenScores::add(double score, Interval interval) {
  exact.push_back(score);
  open.push_back(interval);
  sum += score;
  low_sum += interval.low;
  high_sum += interval.high;
}

/// The scores' own intervals; a rounding of the sum for each score but the first; 4 units of 2^-24 of the division (2 units in the last
/// place).
Bounded ChosenScores::weight(std::size_t k, bool over_sum) const {
  const double value = over_sum ? exact[k] / sum : exact[k];
  const double least = over_sum ? open[k].low / (open[k].low + (high_sum - open[k].high)) : open[k].low,
               most = over_sum ? open[k].high / (open[k].high + (low_sum - open[k].low)) : open[k].high;
  const double slack =
      std::max(std::fabs(most - value), std::fabs(value - least)) + std::fabs(value) * (static_cast<double>(exact.size()) + 3.0) * f32_eps;
  return {value, slack, sum_may_vanish()};
}

}  // namespace dodona::ops
