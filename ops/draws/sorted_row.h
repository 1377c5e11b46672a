// A row of probabilities in order of size: what lies above a threshold, how much, how many; and upstream's search for a threshold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace dodona::ops {

/// How many fp32 additions an element of a sum over `n` goes through in any honest implementation, which adds up in blocks: a block of 1024
/// threads has 3 in a thread, 5 in a warp, 31 over warps and one for each chunk of at least 1024; scans have some more.
constexpr double additions_of(std::int64_t n) {
  const double count = static_cast<double>(n), bound = 64.0 + count / 1024.0;
  return count < bound ? count : bound;
}

/// NaN is left out: no comparison holds for it.
class SortedRow {
 public:
  explicit SortedRow(std::span<const float> row);

  std::int64_t size() const { return static_cast<std::int64_t>(sorted_.size()); }
  std::int64_t count_above(double x) const { return size() - first_above(x); }
  /// Summed in double from the largest.
  double sum_above(double x) const { return sums_[static_cast<std::size_t>(first_above(x))]; }
  /// Infinity where there is none.
  float least_above(double x) const { return value_at(first_above(x), std::numeric_limits<float>::infinity()); }
  /// -infinity where there is none.
  float most_up_to(double x) const { return value_at(first_above(x) - 1, -std::numeric_limits<float>::infinity()); }
  float most() const { return value_at(size() - 1, -std::numeric_limits<float>::infinity()); }
  float least() const { return value_at(0, std::numeric_limits<float>::infinity()); }
  /// From the smallest.
  std::span<const float> values() const { return sorted_; }

 private:
  std::int64_t first_above(double x) const;
  float value_at(std::int64_t i, float otherwise) const { return i >= 0 && i < size() ? sorted_[static_cast<std::size_t>(i)] : otherwise; }

  std::vector<float> sorted_;
  std::vector<double> sums_;  ///< of an element and all behind it
};

struct Threshold {
  double low;   ///< what lies above it is kept
  bool raised;  ///< the search has moved it from where it began
};

/// Upstream's search: [low, high] shrinks in thirds, in double, until one value of the row lies in it. `enough(x)` says whether what lies
/// above x is enough, and holds for nothing above `high`. Where not even all above `low` is enough, low stays. Values are finite.
/// Source: FlashInfer `TopKRenormProbKernel`, `TopPRenormProbKernel`, `TopKMaskLogitsKernel`.
template <class Enough>
Threshold find_threshold(const SortedRow& row, double low, double high, const Enough& enough) {
  bool raised = false;
  for (;;) {
    const double pivot_0 = (high + 2 * low) / 3, pivot_1 = (2 * high + low) / 3;
    const float least = std::min(static_cast<float>(high), row.least_above(low));
    const float most = std::max(static_cast<float>(low), row.most_up_to(high));
    if (enough(pivot_1)) {
      low = pivot_1;
      raised = true;
    } else if (enough(pivot_0)) {
      low = pivot_0;
      high = std::min(pivot_1, static_cast<double>(most));
      raised = true;
    } else {
      high = std::min(pivot_0, static_cast<double>(most));
    }
    if (least == most) return {low, raised};
  }
}

}  // namespace dodona::ops
