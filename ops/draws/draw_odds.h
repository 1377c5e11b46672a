// Which tokens honest sums may draw where a coin times the sum of all weights is looked for among their running sums (BlockedRow has those
// of Hopper).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dodona::ops {

/// Running sums in double, with what honest sums in fp32 make of them: off by 2^-24 of the sum of all for each of the additions one after
/// the other, at most 3 in a thread, 5 in a warp, 31 over warps, two for prefixes, and one for each chunk of 1024 threads.
class DrawOdds {
 public:
  /// Weights that are not above zero are never drawn.
  explicit DrawOdds(std::span<const float> weights);

  double total() const { return sums_.empty() ? 0.0 : sums_.back(); }
  /// First index whose running sum exceeds coin * total(); -1 for none.
  std::int64_t first_above(double coin) const;
  /// Whether an honest implementation may find this index for the coin.
  bool may_find(double coin, std::int64_t index) const;
  /// Whether one may find none: because no sum exceeds the threshold, or because the sum of a chunk does, by another order of its
  /// additions, and none of its elements.
  bool may_find_none(double coin) const;

 private:
  struct Threshold {
    double low, high;
  };
  Threshold threshold(double coin) const;
  double least(double sum) const { return sum - error_; }
  double most(double sum) const { return sum + error_; }

  std::span<const float> weights_;
  std::vector<double> sums_;  ///< inclusive
  double error_;
};

}  // namespace dodona::ops
