#include "ops/routing/hopper_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

namespace hw = quant::hopper;

constexpr int warp_threads = 32, block_threads = 256;

/// What thread 0 of a block has of a reduction.
template <class T, class Reduce>
T reduced(std::array<T, block_threads> values, const Reduce& reduce) {
  for (int warp = 0; warp < block_threads; warp += warp_threads)
    for (int distance = 1; distance < warp_threads; distance *= 2) {
      std::array<T, warp_threads> next;
      for (int lane = 0; lane < warp_threads; ++lane) {
        const T& own = values[static_cast<std::size_t>(warp + lane)];
        next[static_cast<std::size_t>(lane)] =
            lane + distance < warp_threads ? reduce(own, values[static_cast<std::size_t>(warp + lane + distance)]) : own;
      }
      std::copy(next.begin(), next.end(), values.begin() + warp);
    }
  T all = values[0];
  for (int warp = warp_threads; warp < block_threads; warp += warp_threads) all = reduce(all, values[static_cast<std::size_t>(warp)]);
  return all;
}

Pick larger(const Pick& a, const Pick& b) {
  return b.value > a.value || (a.value == b.value && b.expert < a.expert) ? b : a;
}

struct Pair {
  Pick first, second;
};

Pair best_pair(const Pair& a, const Pair& b) {
  const Pick first = a.first.value > b.first.value ? a.first : b.first;
  if (first.expert == a.first.expert) return {first, a.second.value > b.first.value ? a.second : b.first};
  return {first, b.second.value > a.first.value ? b.second : a.first};
}

}  // namespace

bool fits_a_warp(std::int64_t experts) {
  return experts <= 256 && std::has_single_bit(static_cast<std::uint64_t>(experts));
}

WarpRow::WarpRow(DType logits, std::span<const float> columns) {
  const int count = static_cast<int>(columns.size());
  vector_ = std::min(16 / (bits(logits) / 8), count);
  per_thread_ = std::max(1, count / (vector_ * warp_threads)) * vector_;
  threads_ = count / per_thread_;
  values_.resize(columns.size());
  each([&](float, int c) { return columns[static_cast<std::size_t>(c)]; });
}

float WarpRow::largest() const {
  float most = values_[0];
  for (const float x : values_) most = std::fmax(most, x);
  return most;
}

float WarpRow::sum() const {
  std::vector<float> sums(static_cast<std::size_t>(threads_), 0.0f);
  for (int t = 0; t < threads_; ++t)
    for (int i = 0; i < per_thread_; ++i) sums[static_cast<std::size_t>(t)] = hw::add(sums[static_cast<std::size_t>(t)], at(t, i));
  for (int mask = threads_ / 2; mask > 0; mask /= 2) {
    const std::vector<float> before = sums;
    for (int t = 0; t < threads_; ++t)
      sums[static_cast<std::size_t>(t)] = hw::add(before[static_cast<std::size_t>(t)], before[static_cast<std::size_t>(t ^ mask)]);
  }
  return sums[0];
}

Pick WarpRow::take() {
  std::vector<Pick> best;
  for (int t = 0; t < threads_; ++t) {
    Pick pick{at(t, 0), column(t, 0)};
    for (int i = 0; i < per_thread_; ++i)
      if (at(t, i) > pick.value) pick = {at(t, i), column(t, i)};
    best.push_back(pick);
  }
  for (int mask = threads_ / 2; mask > 0; mask /= 2) {
    const std::vector<Pick> before = best;
    for (int t = 0; t < threads_; ++t)
      best[static_cast<std::size_t>(t)] = larger(before[static_cast<std::size_t>(t)], before[static_cast<std::size_t>(t ^ mask)]);
  }
  for (int t = 0; t < threads_; ++t)
    for (int i = 0; i < per_thread_; ++i)
      if (column(t, i) == best[static_cast<std::size_t>(t)].expert) at(t, i) = -10000.0f;
  return best[0];
}

float BlockRow::sum() const {
  std::array<float, block_threads> sums{};
  for (std::size_t i = 0; i < values_.size(); ++i) sums[i % block_threads] = hw::add(sums[i % block_threads], values_[i]);
  return reduced(sums, hw::add);
}

std::vector<Pick> BlockRow::take(std::int64_t count) const {
  std::vector<Pick> picks;
  for (std::int64_t k = 0; k < count; ++k) {
    std::array<Pick, block_threads> best;
    best.fill({-1.0f, 0});
    for (std::size_t i = 0; i < values_.size(); ++i) {
      Pick& own = best[i % block_threads];
      const auto is_it = [&](const Pick& pick) { return pick.expert == static_cast<std::int64_t>(i); };
      const bool taken = std::any_of(picks.begin(), picks.end(), is_it);
      own = larger(taken ? own : Pick{values_[i], static_cast<std::int64_t>(i)}, own);
    }
    picks.push_back(reduced(best, larger));
  }
  return picks;
}

std::vector<Pick> BlockRow::take_pairs(std::int64_t count) {
  std::vector<Pick> picks;
  while (static_cast<std::int64_t>(picks.size()) < count) {
    std::array<Pair, block_threads> best;
    best.fill({{-1.0f, 0}, {-1.0f, 0}});
    for (std::size_t i = 0; i < values_.size(); ++i) {
      Pair& own = best[i % block_threads];
      const Pick x{values_[i], static_cast<std::int64_t>(i)};
      if (x.value > own.first.value) {
        own = {x, own.first};
      } else if (x.value > own.second.value) {
        own.second = x;
      }
    }
    const Pair pair = reduced(best, best_pair);
    for (const Pick& pick : {pair.first, pair.second}) {
      if (static_cast<std::int64_t>(picks.size()) == count) break;
      values_[static_cast<std::size_t>(pick.expert)] = -1.0f;
      picks.push_back(pick);
    }
  }
  return picks;
}

}  // namespace dodona::ops
