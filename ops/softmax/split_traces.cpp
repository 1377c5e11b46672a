#include "ops/softmax/split_traces.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "ops/softmax/leaked_values.h"
#include "ops/softmax/scores.h"
#include "quant/element.h"

namespace dodona::ops {
namespace {

/// Of a weight that is 0 in fp32, and of a sum of weights beyond fp32, with room for the errors of scores.
constexpr double no_weight = 126 * std::numbers::ln2;

double at(const Tensor& t, std::int64_t token, std::int64_t head, std::int64_t i) {
  return quant::load(t.dtype(), t.data(), token * t.stride(0) + head * t.stride(1) + i * t.stride(2));
}

std::int64_t key_head(const Ragged& call, const SeenKeys& keys) {
  return keys.head / (call.query.size(1) / call.key.size(1));
}

/// In natural units.
double score(const Ragged& call, const SeenKeys& keys, std::int64_t key) {
  double sum = 0;
  for (std::int64_t i = 0; i < call.key.size(2); ++i)
    sum += at(call.query, keys.token, keys.head, i) * at(call.key, key, key_head(call, keys), i);
  return ScoreMap{static_cast<float>(call.scale), static_cast<float>(call.cap)}(sum);
}

}  // namespace

SeenKeys keys_seen(const Ragged& call, const std::vector<RaggedRequest>& requests, std::int64_t token, std::int64_t head) {
  for (const RaggedRequest& r : requests) {
    const std::int64_t i = token - r.first_query;
    if (i < 0 || i >= r.queries) continue;
    const std::int64_t end = r.causal ? std::clamp<std::int64_t>(i + r.keys - r.queries + 1 + r.further, 0, r.keys) : r.keys;
    return {token, head, r.first_key, std::min(end, call.key.size(0) - r.first_key)};
  }
  return {token, head, 0, 0};
}

/// Scores are off by no more than a hundredth and 2^-14 of them where their weights are far from fp32's limits; the weights that are left
/// are rounded to the type, and so is the output.
bool lacks_splits_of_no_weight(const Ragged& call, const SeenKeys& keys, std::int64_t column, double value) {
  const std::int64_t value_head = key_head(call, keys);
  // Scores are dear, and the rule is that there is nothing to lose.
  if (!std::isfinite(value) || !holds_infinite_value(call.value, {keys.first, keys.count}, value_head, column)) return false;
  std::vector<double> scores;
  for (std::int64_t j = 0; j < keys.count; ++j) scores.push_back(score(call, keys, keys.first + j));
  const double largest = *std::max_element(scores.begin(), scores.end());
  if (!std::isfinite(largest)) return false;
  const double unit = call.value.dtype() == DType::f16 ? 0x1p-11 : 0x1p-8;
  const double sink = call.sinks.defined() ? quant::get(call.sinks, keys.head) : -std::numeric_limits<double>::infinity();
  double weights = std::exp(sink - largest), sum = 0, magnitudes = 0;
  bool lost = false;
  for (std::int64_t j = 0; j < keys.count; ++j) {
    const double below = largest - scores[static_cast<std::size_t>(j)], v = at(call.value, keys.first + j, value_head, column);
    if (!std::isfinite(v)) {
      if (!(below > no_weight)) return false;
      lost = true;
      continue;
    }
    weights += std::exp(-below);
    sum += std::exp(-below) * v;
    magnitudes += std::exp(-below) * std::fabs(v);
  }
  // A unit for the rounding of weights, one for the output's and one for what scores move; those near 2^17 move more.
  const double moved = std::expm1(std::fmin(1.0, 0x1p-20 * (std::fabs(largest) + 64)));
  return lost && std::fabs(value - sum / weights) <= (3 * unit + 2 * moved) * magnitudes / weights + flush_floor;
}

bool sink_may_overflow_first_split(const Ragged& call, const SeenKeys& keys) {
  if (!call.sinks.defined() || keys.count == 0) return false;
  // Of a split in which the query sees no key the maximum counts as 0.
  return quant::get(call.sinks, keys.head) - std::fmin(0.0, score(call, keys, keys.first)) > no_weight;
}

}  // namespace dodona::ops
