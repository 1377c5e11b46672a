#include "ops/softmax/scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "core/fixed_math.h"
#include "core/flaw.h"
#include "ops/sums/accumulator.h"

namespace dodona::ops {
namespace {

constexpr double log2_e = std::numbers::log2e;

/// What weights of a type may lose when they are rounded for their products: a share (half a unit in the last place, just above a power of
/// two), and below some weight (the largest being 1) more than that, yet never more than all.
struct WeightRounding {
  double share, normal_from, at_most;
};
WeightRounding weight_rounding(DType type) {
  switch (type) {
    case DType::bf16: return {0x1p-8, 0x1p-126, 0x1p-126};  // fp32 weights below that may be flushed
    case DType::f16: return {0x1p-11, 0x1p-14, 0x1p-25};
    case DType::f8_e4m3: return {0x1p-4, 0x1p-6, 0x1p-10};
    default: return {0, 0, 0};
  }
}

}  // namespace

double lost_by_fp8_steps(const double* query, const double* key, std::int64_t width) {
  constexpr int smallest_normal = -6;
  const auto line = [&](const double* numbers) {
    Line l{.type = DType::f8_e4m3, .k = static_cast<std::size_t>(width)};
    l.values.assign(numbers, numbers + width);
    for (const double x : l.values)
      l.exponents.push_back(x == 0 ? exponent_of_zero
                                   : static_cast<std::int16_t>(std::isfinite(x) ? std::max(std::ilogb(x), smallest_normal) : 0));
    return l;
  };
  return sum_of(hopper_fp8, line(query), line(key), true).slack;
}

ScoreErrors ScoreErrors::of_rounded_maximum(std::int64_t width, DType weights, double scale) {
  const double size = std::fabs(scale), most = weights == DType::bf16 ? 0x1p30 : 0x1p27;
  ScoreErrors errors = of_fp32(width);
  errors.limit = std::fmin(errors.limit, most / (size * log2_e) * std::fmax(1.0, 2 * size));
  return errors;
}

double ScoreMap::operator()(double z) const {
  const double score = scale * z;
  return temperature == 1 && cap == 0 ? score : temperature * (cap == 0 ? score : cap * fixed::tanh(score / cap));
}

double ScoreMap::reach(double z, double error) const {
  if (cap == 0) return slope() * error;
  return std::fmax((*this)(z + error) - (*this)(z), (*this)(z) - (*this)(z - error));
}

/// The cap's own; the temperature: 8 units of 2^-24 for a logarithm, its division and the product.
double ScoreMap::error(double score) const {
  return (cap == 0 ? 0.0 : temperature * cap * cap_error) + (temperature == 1 ? 0.0 : 8 * f32_eps * std::fabs(score));
}

void HeadWeights::add_key(double sum, double magnitudes, double rounding, const ScoreMap& map, const ScoreErrors& errors) {
  z.push_back(sum);
  error.push_back(errors.relative * magnitudes + errors.absolute + rounding);
  // Overflow of fp32, here with room for the scale.
  if (!std::isnan(sum) && !(magnitudes * std::fmax(1.0, 2 * map.slope()) < errors.limit)) lse.open = true;
}

void HeadWeights::softmax(const ScoreMap& map, bool shifted) {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const double score : z)
    largest = std::isnan(score) || std::isnan(largest) ? std::numeric_limits<double>::quiet_NaN() : std::fmax(largest, map(score));
  if (std::isnan(sink) || sink == std::numeric_limits<double>::infinity()) lse.open = true;
  largest_score = {log2_e * largest, 0.0, lse.open || std::isnan(largest)};
  const bool sunk = has_sink() && !lse.open;
  if (sunk && sink > largest) largest = sink;
  if (!shifted) largest = 0;
  const auto exponential = [&](double x) { return shifted ? fixed::exp(x - largest) : unshifted_exponential(x); };
  for (const double score : z) {
    p.push_back(exponential(map(score)));
    sum += p.back();
  }
  if (sunk) sum += exponential(sink);
  if (empty_terms > 0) sum += empty_terms * exponential(empty_score);
  overflows = !shifted && (sum == 0 || !(sum <= static_cast<double>(std::numeric_limits<float>::max())));
  // What is left of exponentials near the denormals nobody knows.
  if (!shifted && sum > 0 && sum < 0x1p-100) lse.open = true;
  for (double& weight : p) weight /= sum;
  lse.exact = log2_e * largest + fixed::log2(sum);
}

/// Scores of an honest kernel, in natural units, are off by at most d[j]:
///  - what `errors` says of the sum: for fp32 a unit of 2^-24 of sum |q * k| per element of the key;
///  - 4 units of the score and 4 of the largest: sigma = scale * log2 e in fp32, the products, the subtraction of a (running) maximum;
///  - 2^-22 for the approximate exp2, and the same for each rescaling: one per 64 keys, and one for the merging of splits, whose
///    log-sum-exps are rounded to 2^-24 relative.
/// A weight then lies between p * exp(-x) and p * exp(x), x = d[j] + max d; the weights of any kernel add up to 1. A sink is one of them:
/// of its score the last two alone are lost.
void HeadWeights::bound(const ScoreMap& map, const WeightTypes& types, bool normalised, bool of_rounded) {
  if (lse.open || overflows || std::isnan(lse.exact)) return;
  constexpr double u = f32_eps;
  const auto count = static_cast<double>(z.size());
  double largest = 0, worst = 0, top = 0;
  for (const double score : z) largest = std::fmax(largest, std::fabs(map(score)));
  if (has_sink()) largest = std::fmax(largest, std::fabs(sink));
  const double common = 4 * u * largest + 0x1p-22 * (2 + count / 64 + largest + fixed::log(count) + 2);
  std::vector<double> d;
  for (std::size_t j = 0; j < z.size(); ++j) {
    const double score = map(z[j]);
    d.push_back(map.reach(z[j], error[j]) + 4 * u * std::fabs(score) + map.error(score) + common);
    worst = std::fmax(worst, d.back());
    top = std::fmax(top, p[j]);
  }
  const double of_sink = has_sink() ? 4 * u * std::fabs(sink) + common : 0.0;
  worst = std::fmax(worst, of_sink);
  const double sink_weight = has_sink() ? fixed::exp(sink - lse.exact / log2_e) : 0.0;
  sink_drift = of_sink + worst < 1 ? std::fmin(1.0, sink_weight * fixed::expm1(of_sink + worst)) : 1.0;
  if (!has_sink()) sink_drift = 0;
  heaviest = top;
  if (sink_leads) top = std::fmax(top, sink_weight);
  if (normalised) top = 1;
  for (std::size_t j = 0; j < z.size(); ++j) {
    const WeightRounding rounding = weight_rounding(static_cast<std::int64_t>(j) < types.cached ? types.cached_type : types.type);
    const double weight = p[j], x = d[j] + worst;
    // A weight too small for a double may still be the largest of a kernel's.
    const double logarithm = weight > 0 ? fixed::log(weight) : map(z[j]) - lse.exact / log2_e;
    most.push_back(std::fmin(1.0, fixed::exp(std::fmin(logarithm + x, 0.0))));
    drift.push_back(x < 1 ? std::fmin(1.0, weight * fixed::expm1(x)) : most[j]);
    // Relative to the largest weight, which a running maximum can only make larger. The largest so far is 1, which every type holds (as
    // does whatever scale a kernel gives it): what is rounded lies between `least` and 1, and moves no farther than to 1.
    const double relative = most[j] / top, least = weight / top * fixed::exp(-x);
    double loss = relative >= rounding.normal_from ? rounding.share * relative : std::fmin(relative, rounding.at_most);
    if (least < rounding.normal_from) loss = std::fmax(loss, std::fmin(relative, rounding.at_most));
    lost.push_back(std::fmin(std::fmin(loss, 1.0), 1.0 - least) * top);
  }
  lse.slack = log2_e * worst + count * u + 4 * u * (std::fabs(lse.exact) + 1) + 0x1p-21;
  if (of_rounded) lse.slack -= log2_e * fixed::log(1 - std::fmin(std::accumulate(lost.begin(), lost.end(), 0.0), 0.5));
  largest_score.slack = log2_e * worst;
}

}  // namespace dodona::ops
