// Sums of golden mode of several lines with one column.
#pragma once

#include <span>
#include <vector>

#include "dodona/isa.h"
#include "ops/sums/accumulator.h"

namespace dodona::ops {

/// Lines whose sums with a column are taken together, eight in a vector, where the order allows that; else one after the other.
class LinesTogether {
 public:
  /// Both are kept by reference.
  LinesTogether(const Accumulator& accumulator, std::span<const Line> lines, bool judged, Isa isa);
  /// results[i] = sum_of(accumulator, lines[i], b, judged).
  void sums_with(const Line& b, std::span<Bounded> results) const;

 private:
  /// Of products [begin, end) alone, before scales.
  void span_sums(const Line& b, std::size_t begin, std::size_t end, std::span<Bounded> results) const;
  /// Those of at most eight lines from `first` on, with the question of Order::contiguous, or of the other two orders.
  void contiguous_sums(const Line& b, std::size_t begin, std::size_t end, std::size_t first, std::span<Bounded> eight) const;
  void step_sums(const Line& b, std::size_t begin, std::size_t end, std::size_t first, std::span<Bounded> eight) const;

  const Accumulator& accumulator_;
  std::span<const Line> lines_;
  bool judged_;
  Isa isa_;
  bool together_ = false, contiguous_ = false;  ///< eight lines are, and with the question of Order::contiguous
  std::vector<double> eights_;                  ///< [lines / 8][k][8]
  std::vector<std::int16_t> exponents_;         ///< likewise, where steps are followed
};

}  // namespace dodona::ops
