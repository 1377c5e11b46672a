// A token drawn from weights by the sums of a block of 1024 threads, as FlashInfer's sampling kernels draw it: the first index, in chunks
// of 1024 vectors, whose running sum exceeds a threshold.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dodona::ops {

/// Elements of a chunk: 1024 threads with as many elements each as 16 bytes and the width have in common.
std::int64_t draw_chunk(std::int64_t width);

/// What such a sum may be off by, relative to the sum of all (weights are not negative): 2^-24 for each of the additions one after the
/// other, at most 3 in a thread, 5 in a warp, 31 over warps, two for prefixes, and one for each chunk.
double draw_error(std::int64_t width);

// ---- in exact arithmetic, for any implementation

/// Running sums in double, with what honest sums in fp32 make of them.
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

// ---- to the bit on Hopper

class BlockDraw {
 public:
  /// `deterministic`: sums of a chunk by the up- and down-sweep that upstream has for that, else by cub's scan.
  BlockDraw(std::span<const float> weights, bool deterministic);

  float total() const;
  /// First index whose running sum exceeds u, where the sum of its chunk says so too; -1 for none.
  std::int64_t first_above(float u) const;

 private:
  /// Elements begin .. begin + chunk, zeros behind the last.
  std::vector<float> chunk(std::int64_t begin) const;
  float sum(const std::vector<float>& chunk) const;
  std::vector<float> running_sums(const std::vector<float>& chunk) const;

  std::span<const float> weights_;
  bool deterministic_;
  std::int64_t vector_;
};

}  // namespace dodona::ops
