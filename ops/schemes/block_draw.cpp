#include "ops/schemes/block_draw.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;

constexpr std::int64_t threads = 1024, vector_bytes = 16;
constexpr std::size_t lanes = 32, warps = threads / lanes;
using Warp = std::array<float, lanes>;

/// What lane 0 has after lanes were added by distances 1, 2, 4, 8, 16.
float folded(Warp warp) {
  for (std::size_t distance = 1; distance < lanes; distance *= 2)
    for (std::size_t lane = 0; lane + distance < lanes; lane += 2 * distance) warp[lane] = hw::add(warp[lane], warp[lane + distance]);
  return warp[0];
}

/// Exclusive sums by an up-sweep and a down-sweep; gives the sum of all.
float sweep(Warp& x) {
  for (std::size_t distance = 1; distance < lanes; distance *= 2)
    for (std::size_t lane = 2 * distance - 1; lane < lanes; lane += 2 * distance) x[lane] = hw::add(x[lane], x[lane - distance]);
  const float total = x[lanes - 1];
  x[lanes - 1] = 0;
  for (std::size_t distance = lanes / 2; distance > 0; distance /= 2)
    for (std::size_t lane = 2 * distance - 1; lane < lanes; lane += 2 * distance) {
      const float left = x[lane - distance];
      x[lane - distance] = x[lane];
      x[lane] = hw::add(left, x[lane]);
    }
  return total;
}

/// Inclusive sums by distances 1, 2, 4, 8, 16, each lane adding the one before it.
void scan(Warp& x) {
  for (std::size_t distance = 1; distance < lanes; distance *= 2) {
    const Warp before = x;
    for (std::size_t lane = distance; lane < lanes; ++lane) x[lane] = hw::add(before[lane - distance], before[lane]);
  }
}

/// Of each thread of a warp, what lies before its elements.
struct Before {
  Warp in_warp;
  float warp;
};

std::array<Before, warps> swept(const std::array<Warp, warps>& sums) {
  std::array<Before, warps> before;
  Warp totals;
  for (std::size_t w = 0; w < warps; ++w) {
    before[w].in_warp = sums[w];
    totals[w] = sweep(before[w].in_warp);
  }
  sweep(totals);
  for (std::size_t w = 0; w < warps; ++w) before[w].warp = totals[w];
  return before;
}

}  // namespace

std::int64_t draw_chunk(std::int64_t width) {
  return threads * std::gcd(vector_bytes / 4, width);
}

double draw_error(std::int64_t width) {
  const std::int64_t chunks = (width + draw_chunk(width) - 1) / draw_chunk(width);
  return static_cast<double>(3 + 5 + 31 + 2 + chunks) * 0x1p-24;
}

// ---- in exact arithmetic

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

// ---- to the bit

BlockDraw::BlockDraw(std::span<const float> weights, bool deterministic)
    : weights_(weights), deterministic_(deterministic), vector_(draw_chunk(static_cast<std::int64_t>(weights.size())) / threads) {}

std::vector<float> BlockDraw::chunk(std::int64_t begin) const {
  std::vector<float> values(static_cast<std::size_t>(threads * vector_), 0.0f);
  const std::int64_t n = std::min<std::int64_t>(threads * vector_, static_cast<std::int64_t>(weights_.size()) - begin);
  for (std::int64_t i = 0; i < n; ++i)
    if (const float weight = hw::ftz(weights_[static_cast<std::size_t>(begin + i)]); weight > 0)
      values[static_cast<std::size_t>(i)] = weight;
  return values;
}

namespace {

/// Each thread's own sum, its elements in order.
std::array<Warp, warps> thread_sums(const std::vector<float>& chunk, std::int64_t vector) {
  std::array<Warp, warps> sums;
  std::size_t at = 0;
  for (Warp& warp : sums)
    for (float& own : warp) {
      own = chunk[at++];
      for (std::int64_t j = 1; j < vector; ++j) own = hw::add(own, chunk[at++]);
    }
  return sums;
}

}  // namespace

float BlockDraw::sum(const std::vector<float>& chunk) const {
  const auto sums = thread_sums(chunk, vector_);
  float total = folded(sums[0]);
  for (std::size_t w = 1; w < warps; ++w) total = hw::add(total, folded(sums[w]));
  return total;
}

std::vector<float> BlockDraw::running_sums(const std::vector<float>& chunk) const {
  auto sums = thread_sums(chunk, vector_);
  std::vector<float> result(chunk.size());
  const auto each_thread = [&](const auto& body) {
    for (std::size_t t = 0; t < static_cast<std::size_t>(threads); ++t) body(t / lanes, t % lanes, t * static_cast<std::size_t>(vector_));
  };
  if (deterministic_) {
    const auto before = swept(sums);
    each_thread([&](std::size_t w, std::size_t lane, std::size_t at) {
      const float prefix = hw::add(before[w].warp, before[w].in_warp[lane]);
      float own = 0;
      for (std::size_t j = 0; j < static_cast<std::size_t>(vector_); ++j) {
        own = hw::add(own, chunk[at + j]);
        result[at + j] = hw::add(prefix, own);
      }
    });
    return result;
  }
  std::array<float, warps> before_warp;
  float total = 0;
  for (std::size_t w = 0; w < warps; ++w) {
    scan(sums[w]);
    before_warp[w] = total;
    total = w == 0 ? sums[w][lanes - 1] : hw::add(total, sums[w][lanes - 1]);
  }
  each_thread([&](std::size_t w, std::size_t lane, std::size_t at) {
    if (vector_ == 1) {
      result[at] = hw::add(before_warp[w], sums[w][lane]);
      return;
    }
    float running = lane == 0 ? before_warp[w] : hw::add(before_warp[w], sums[w][lane - 1]);
    for (std::size_t j = 0; j < static_cast<std::size_t>(vector_); ++j) result[at + j] = running = hw::add(running, chunk[at + j]);
  });
  return result;
}

float BlockDraw::total() const {
  float total = 0;
  const auto width = static_cast<std::int64_t>(weights_.size());
  for (std::int64_t begin = 0; begin < width; begin += threads * vector_) total = hw::add(total, sum(chunk(begin)));
  return total;
}

std::int64_t BlockDraw::first_above(float u) const {
  const auto width = static_cast<std::int64_t>(weights_.size());
  float before = 0;
  for (std::int64_t begin = 0; begin < width; begin += threads * vector_) {
    const std::vector<float> values = chunk(begin);
    const float after = hw::add(before, sum(values));
    if (after > u) {
      const std::vector<float> sums = running_sums(values);
      for (std::size_t i = 0; i < values.size(); ++i)
        if (values[i] > 0 && hw::add(sums[i], before) > u) return begin + static_cast<std::int64_t>(i);
      return -1;
    }
    before = after;
  }
  return -1;
}

}  // namespace dodona::ops
