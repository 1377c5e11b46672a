// Scores of experts, the keys that are compared, and the weights of those that were chosen: as kernels compute them, and where those of an
// honest kernel may lie.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "core/fixed_math.h"
#include "dodona/tensor.h"
#include "ops/base/bounded.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {

/// One row: unbiased scores, which become weights, and biased ones, which are compared.
struct RouterScores {
  std::vector<float> weights, keys;
};

/// fp32 as golden mode has it, and as an H200 does.
struct ExactArithmetic {
  static float sigmoid(float x) { return static_cast<float>(fixed::sigmoid(x)); }
  static float add(float a, float b) { return a + b; }
};
struct HopperArithmetic {
  static float sigmoid(float x) { return quant::hopper::sigmoid(x); }
  static float add(float a, float b) { return quant::hopper::add(a, b); }
};

/// A mistake of kernels, where a contract has 1/(1+exp(-x)): a sigmoid made of the approximate tanh, which knows eleven bits.
struct TanhArithmetic {
  static float sigmoid(float x) { return 0.5f * quant::hopper::tanhf(0.5f * x) + 0.5f; }
  static float add(float a, float b) { return a + b; }
};

inline float rounded_score(DType type, float x) {
  return type == DType::f32 ? x : static_cast<float>(quant::round_to(type, x));
}
/// A NaN counts as -inf wherever keys are compared.
inline float as_key(float x) {
  return std::isnan(x) ? -std::numeric_limits<float>::infinity() : x;
}

/// n elements of a row.
std::vector<float> router_row(const Tensor& t, std::int64_t row, std::int64_t n);

/// s = sigmoid(x) and s + bias, each rounded to the type.
template <class Arithmetic>
RouterScores sigmoid_scores(DType type, std::span<const float> x, std::span<const float> bias) {
  RouterScores scores{std::vector<float>(x.size()), std::vector<float>(x.size())};
  for (std::size_t e = 0; e < x.size(); ++e) {
    scores.weights[e] = rounded_score(type, Arithmetic::sigmoid(x[e]));
    scores.keys[e] = as_key(rounded_score(type, Arithmetic::add(scores.weights[e], bias[e])));
  }
  return scores;
}

// ---- what the contract leaves open

/// Where an honest implementation's number lies. Its ends are numbers of the type: what is compared with it must not gain by widening.
struct Interval {
  double low, high;
};

/// Of sigmoid(x), after its rounding to the type. NaN for NaN.
Interval sigmoid_interval(DType type, double x);
/// 0.5 * tanh(0.5 x) + 0.5 in fp32, as FlashInfer's routers make sigmoids, and where those of an honest kernel lie: small ones are off by
/// as much as large ones.
float tanh_sigmoid(float x);
Interval tanh_sigmoid_interval(float x);
/// Of a + b over both intervals, rounded to the type; what is denormal may be flushed.
Interval sum_interval(DType type, Interval a, Interval b);

/// Scores of the chosen experts in order: what golden mode has, and the intervals around them.
struct ChosenScores {
  std::vector<double> exact;
  std::vector<Interval> open;
  double sum = 0, low_sum = 0, high_sum = 0;

  void add(double score, Interval interval);
  /// Sums near the denormals may be flushed, and give NaN for 0/0.
  bool sum_may_vanish() const { return high_sum > 0 && low_sum < 0x1p-90; }
  /// Score k over the sum of all, or (a mistake of kernels) the score alone.
  Bounded weight(std::size_t k, bool over_sum = true) const;
};

}  // namespace dodona::ops
