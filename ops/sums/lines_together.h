// Sums of golden mode of several lines with one column.
#pragma once

#include <span>
#include <vector>

#include "dodona/isa.h"
#include "ops/sums/accumulator.h"

namespace dodona::ops {

/// Lines whose sums with a column are taken together, where the order allows that: the same numbers in less time.
class LinesTogether {
 public:
  /// Both are kept by reference.
  LinesTogether(const Accumulator& accumulator, std::span<const Line> lines, bool judged, Isa isa);
  /// results[i] = sum_of(accumulator, lines[i], b, judged).
  void sums_with(const Line& b, std::span<Bounded> results) const;

 private:
  const Accumulator& accumulator_;
  std::span<const Line> lines_;
  bool judged_;
  Isa isa_;
  std::vector<double> eights_;  ///< [lines / 8][k][8]; empty: one line after the other
};

}  // namespace dodona::ops
