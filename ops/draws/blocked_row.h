// A row as a block of 1024 threads of FlashInfer's sampling kernels goes over it: the order of its sums and scans, for an H200's bits.
//
// A chunk is 1024 threads of gcd(4, V) neighbours each. A chunk's sum: each thread adds its elements in order, the lanes of a warp add up
// in neighbouring pairs, pairs of pairs and so on, the sums of the 32 warps in order. Chunks are added in order. Denormals are zero.
// Source: FlashInfer `sampling.cuh` (DeviceSamplingFromProb, DeterministicInclusiveSum), CUB `ThreadReduce`, `BlockReduce` (warp
// reductions), `BlockScan` (warp scans).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dodona::ops {

/// Elements above `value`, or from it on.
struct Bar {
  double value;
  bool inclusive = false;
  bool passes(float x) const { return inclusive ? static_cast<double>(x) >= value : static_cast<double>(x) > value; }
};

/// How a chunk's running sums are made.
enum class Scan {
  deterministic,  ///< upstream's up-sweep and down-sweep over lanes, then over warps
  warp_scans,     ///< CUB's: distances 1, 2, 4, 8, 16 over lanes; warps in order
};

class BlockedRow {
 public:
  explicit BlockedRow(std::span<const float> row);

  std::int64_t size() const { return size_; }
  /// With zeros in the place of denormals.
  float at(std::int64_t i) const { return elements_[static_cast<std::size_t>(i)]; }
  std::span<const float> elements() const { return std::span(elements_).first(static_cast<std::size_t>(size_)); }

  float sum(const Bar& bar) const { return sum(bar, false); }
  /// Where a count goes with each element.
  float sum_beside_count(const Bar& bar) const { return sum(bar, true); }
  /// Of all elements, each thread adding up its own of all chunks before threads are added up.
  float sum_by_threads() const;
  /// From which upstream searches for a threshold: at least 0. Of two the later one stays only if it is greater, so a NaN stays where it
  /// comes first, hides what comes after it, and is itself lost to whatever came before. Elements of a thread and lanes meet in pairs.
  float most() const;

  /// The first element that passes whose running sum exceeds u. Where sums leave none, the last one that passes up to the end of the chunk
  /// in which the search ended; `otherwise` where there is none either.
  std::int64_t draw(const Bar& bar, float u, Scan scan, std::int64_t otherwise) const;
  /// The same, -1 where sums leave none.
  std::int64_t first_above(const Bar& bar, float u, Scan scan) const;

 private:
  static constexpr std::int64_t threads = 1024;
  std::int64_t chunk() const { return threads * vector_; }
  float sum(const Bar& bar, bool beside_count) const;
  /// Each thread's own sum.
  std::vector<float> thread_sums(const std::vector<float>& terms, bool in_order) const;
  /// The elements of chunk c that pass, zeros for the others.
  void kept(std::int64_t c, const Bar& bar, std::vector<float>& terms) const;
  float chunk_sum(const std::vector<float>& terms) const;
  /// first_above; `last` becomes the last element that passes up to the end of the chunk in which the search ended, if there is one.
  std::int64_t search(const Bar& bar, float u, Scan scan, std::int64_t& last) const;
  std::vector<float> running_sums(const std::vector<float>& terms, Scan scan) const;

  std::int64_t size_, vector_, chunks_;
  std::vector<float> elements_;  ///< padded to whole chunks
};

}  // namespace dodona::ops
