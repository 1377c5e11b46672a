#include "ops/draws/sorted_row.h"

namespace dodona::ops {

SortedRow::SortedRow(std::span<const float> row) {
  sorted_.reserve(row.size());
  for (const float x : row)
    if (x == x) sorted_.push_back(x);
  std::sort(sorted_.begin(), sorted_.end());
  sums_.assign(sorted_.size() + 1, 0.0);
  for (std::size_t i = sorted_.size(); i-- > 0;) sums_[i] = sums_[i + 1] + static_cast<double>(sorted_[i]);
}

std::int64_t SortedRow::first_above(double x) const {
  const auto above = [](double bar, float value) { return static_cast<double>(value) > bar; };
  return std::upper_bound(sorted_.begin(), sorted_.end(), x, above) - sorted_.begin();
}

}  // namespace dodona::ops
