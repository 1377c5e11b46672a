// How the top-k kernels of sgl-kernel deal a row of experts out to threads, to the bit: the order of their sums, and how they find the
// largest. Not a number is compared as the hardware compares it: never greater, never equal.
//
// Rows of a power of two up to 256 belong to one warp: vectors of 16 bytes of logits, dealt out in turn; sums thread by thread, then by
// butterflies. All others belong to a block of 256 threads, one column in turn; its reductions fold warps by distances 1, 2, 4, 8, 16 and
// add the warps in order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dodona/dtype.h"

namespace dodona::ops {

/// Whether a row of so many experts belongs to one warp.
bool fits_a_warp(std::int64_t experts);

struct Pick {
  float value;
  std::int64_t expert;
};

/// A row in the registers of a warp.
class WarpRow {
 public:
  /// `logits`: the type in memory, which says how many a vector holds.
  WarpRow(DType logits, std::span<const float> columns);

  /// The largest number; NaN when there is none.
  float largest() const;
  float sum() const;
  /// body(value, column) gives the new value.
  template <class Body>
  void each(const Body& body) {
    for (int t = 0; t < threads_; ++t)
      for (int i = 0; i < per_thread_; ++i) at(t, i) = body(at(t, i), column(t, i));
  }
  /// What the first thread takes for the largest, the lower column of equals; every thread clears what it takes for it to -10000.
  Pick take();

 private:
  std::size_t index(int thread, int i) const { return static_cast<std::size_t>(std::int64_t{thread} * per_thread_ + i); }
  float& at(int thread, int i) { return values_[index(thread, i)]; }
  float at(int thread, int i) const { return values_[index(thread, i)]; }
  int column(int thread, int i) const { return thread * vector_ + i / vector_ * threads_ * vector_ + i % vector_; }

  int vector_, per_thread_, threads_;
  std::vector<float> values_;
};

/// A row in memory, worked on by a block.
class BlockRow {
 public:
  explicit BlockRow(std::vector<float> columns) : values_(std::move(columns)) {}

  std::vector<float>& values() { return values_; }
  float sum() const;
  /// Round by round the largest, the lower column of equals (cub::ArgMax); columns that were taken do not count.
  std::vector<Pick> take(std::int64_t count) const;
  /// Two in a round, by the kernel that finds pairs: of equals the reduction keeps the later one's. Destroys the row.
  std::vector<Pick> take_pairs(std::int64_t count);

 private:
  std::vector<float> values_;
};

}  // namespace dodona::ops
