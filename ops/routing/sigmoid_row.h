// A row of sigmoid scores in fp32 with a bias that steers the choice, in golden mode.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "ops/routing/order.h"
#include "ops/routing/scores.h"

namespace dodona::ops {

struct SigmoidRow {
  std::vector<float> x, bias, keys;  ///< keys: sigmoid(x) + bias, as golden mode has them
  std::vector<Interval> open;        ///< where keys of an honest implementation lie
  bool ties_are_open = false;

  SigmoidRow(std::vector<float> logits, std::vector<float> biases, bool open_ties = false, bool from_tanh = false)
      : x(std::move(logits)), bias(std::move(biases)), ties_are_open(open_ties) {
    keys = (from_tanh ? sigmoid_scores<TanhArithmetic>(DType::f32, x, bias) : sigmoid_scores<ExactArithmetic>(DType::f32, x, bias)).keys;
    if (from_tanh) {
      for (const float key : keys) open.push_back({key, key});
      return;
    }
    for (std::size_t e = 0; e < x.size(); ++e)
      open.push_back(sum_interval(DType::f32, sigmoid_interval(DType::f32, x[e]), {bias[e], bias[e]}));
  }

  bool has_nan() const {
    const auto is_nan = [](float value) { return std::isnan(value); };
    return std::any_of(x.begin(), x.end(), is_nan) || std::any_of(bias.begin(), bias.end(), is_nan);
  }

  std::vector<std::int64_t> choose(std::int64_t count, ChoiceRule rule = ChoiceRule::right) const {
    return ops::choose({DType::f32, 1, 1, count}, keys, ExactArithmetic::add, rule);
  }
  /// The least that one of their keys may be.
  double least_key(std::span<const std::int64_t> chosen) const {
    double least = std::numeric_limits<double>::infinity();
    for (const std::int64_t e : chosen) least = std::min(least, open[static_cast<std::size_t>(e)].low);
    return least;
  }
  bool allows(std::span<const std::int64_t> chosen) const {
    std::vector<GateKey> experts;
    for (std::size_t e = 0; e < keys.size(); ++e) {
      if (ties_are_open) {
        // Equal numbers are no order: each interval is made to overlap its equals, infinities theirs as well.
        const double low = std::min(open[e].low, std::numeric_limits<double>::max());
        const double high = std::nextafter(open[e].high, std::numeric_limits<double>::infinity());
        experts.push_back({low, high, {e, ~std::uint64_t{0}}});
      } else {
        experts.push_back({open[e].low, open[e].high, {std::bit_cast<std::uint32_t>(x[e]), std::bit_cast<std::uint32_t>(bias[e])}});
      }
    }
    const std::vector<GateKey> one_group{{0.0, 0.0, {}}};
    return is_legitimate_choice(experts, one_group, 1, chosen);
  }
};

}  // namespace dodona::ops
