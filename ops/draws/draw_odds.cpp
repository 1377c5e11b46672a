#include "ops/draws/draw_odds.h"

#include <cmath>
#include <numeric>

namespace dodona::ops {
namespace {

/// Elements of a chunk: 1024 threads with as many elements each as 16 bytes and the width have in common.
std::int64_t draw_chunk(std::int64_t width) {
  return 1024 * std::gcd(std::int64_t{4}, width);
}

double draw_error(std::int64_t width) {
  const std::int64_t chunks = (width + draw_chunk(width) - 1) / draw_chunk(width);
  return static_cast<double>(3 + 5 + 31 + 2 + chunks) * 0x1p-24;
}

}  // namespace

DrawOdds::DrawOdds(std::span<const float> weights) : weights_(weights) {
  double sum = 0;
  sums_.reserve(weights.size());
  for (const float weight : weights) sums_.push_back(sum += weight > 0 ? static_cast<double>(weight) : 0.0);
  // Denormal weights may be flushed.
  const auto width = static_cast<std::int64_t>(weights.size());
  error_ = draw_error(width) * sum + static_cast<double>(width) * 0x1p-126;
}

std::int64_t DrawOdds::first_above(double coin) const {
  const double u = coin * total();
  for (std::size_t i = 0; i < sums_.size(); ++i)
    if (weights_[i] > 0 && sums_[i] > u) return static_cast<std::int64_t>(i);
  return -1;
}

DrawOdds::Threshold DrawOdds::threshold(double coin) const {
  const double u = coin * total(), error = std::fabs(coin) * error_ + std::fabs(u) * 0x1p-24;
  return {u - error, u + error};
}

bool DrawOdds::may_find(double coin, std::int64_t index) const {
  if (index == first_above(coin)) return true;
  if (index < 0 || index >= static_cast<std::int64_t>(sums_.size()) || !std::isfinite(total())) return false;
  const auto i = static_cast<std::size_t>(index);
  const auto [low, high] = threshold(coin);
  const double before = sums_[i] - static_cast<double>(weights_[i]);
  return weights_[i] > 0 && most(sums_[i]) > low && (before <= 0 || least(before) <= high);
}

bool DrawOdds::may_find_none(double coin) const {
  if (first_above(coin) < 0) return true;
  if (!std::isfinite(total())) return false;
  const auto [low, high] = threshold(coin);
  if (least(total()) <= high) return true;
  const auto chunk = static_cast<std::size_t>(draw_chunk(static_cast<std::int64_t>(sums_.size())));
  for (std::size_t end = chunk; end < sums_.size(); end += chunk)
    if (most(sums_[end - 1]) > low && least(sums_[end - 1]) <= high) return true;
  return false;
}

}  // namespace dodona::ops
