#include "ops/schemes/largest.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace dodona::ops {

bool is_larger(double a, double b) {
  return a > b || (std::isnan(a) && !std::isnan(b));
}

bool are_equal(double a, double b) {
  return !is_larger(a, b) && !is_larger(b, a);
}

std::vector<std::int64_t> largest(std::span<const double> row, std::int64_t k) {
  std::vector<std::int64_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](std::int64_t a, std::int64_t b) {
    const double x = row[static_cast<std::size_t>(a)], y = row[static_cast<std::size_t>(b)];
    return are_equal(x, y) ? a < b : is_larger(x, y);
  });
  order.resize(static_cast<std::size_t>(k));
  return order;
}

bool equally_large(std::span<const double> row, std::span<const std::int64_t> right, std::span<const std::int64_t> actual) {
  std::vector<std::int64_t> once(actual.begin(), actual.end());
  std::sort(once.begin(), once.end());
  if (std::adjacent_find(once.begin(), once.end()) != once.end()) return false;
  if (!once.empty() && (once.front() < 0 || once.back() >= static_cast<std::int64_t>(row.size()))) return false;
  return std::equal(right.begin(), right.end(), actual.begin(), actual.end(), [&](std::int64_t a, std::int64_t b) {
    return are_equal(row[static_cast<std::size_t>(a)], row[static_cast<std::size_t>(b)]);
  });
}

namespace {

constexpr std::size_t network = 32;

struct Entry {
  double value = 0;
  std::int64_t index = -1;
  bool there = false;
};

/// Up to 32 numbers go through a bitonic network of 32 places, which is not stable; it exchanges equal numbers, too.
void sort_by_network(std::array<Entry, network>& entries) {
  const auto exchange = [&](std::size_t a, std::size_t b, bool rising) {
    const bool falling = (is_larger(entries[a].value, entries[b].value) && entries[a].there) || !entries[b].there;
    if (falling == rising) std::swap(entries[a], entries[b]);
  };
  for (std::size_t size = 2; size <= network; size *= 2)
    for (std::size_t stride = size / 2; stride > 0; stride /= 2)
      for (std::size_t thread = 0; thread < network / 2; ++thread) {
        const std::size_t place = 2 * thread - (thread & (stride - 1));
        exchange(place, place + stride, size < network && (thread & (size / 2)) != 0);
      }
}

/// Radix digits tell zeros of either sign apart.
bool is_above(double a, double b) {
  return is_larger(a, b) || (a == 0 && b == 0 && !std::signbit(a) && std::signbit(b));
}

}  // namespace

std::vector<std::int64_t> selected_by_torch(std::span<const double> row, std::int64_t k) {
  std::vector<std::int64_t> found;
  if (k == 0) return found;
  std::vector<double> sorted(row.begin(), row.end());
  std::nth_element(sorted.begin(), sorted.begin() + (k - 1), sorted.end(), is_above);
  const double last = sorted[static_cast<std::size_t>(k - 1)];
  for (const bool above : {true, false})
    for (std::size_t i = 0; i < row.size() && static_cast<std::int64_t>(found.size()) < k; ++i)
      if (is_above(row[i], last) == above && (above || !is_above(last, row[i]))) found.push_back(static_cast<std::int64_t>(i));
  return found;
}

std::vector<std::int64_t> largest_by_torch(std::span<const double> row, std::int64_t k) {
  if (k <= 1) return largest(row, k);
  std::vector<std::int64_t> found = selected_by_torch(row, k);
  const auto value = [&](std::int64_t i) { return row[static_cast<std::size_t>(i)]; };
  if (found.size() > network) {
    std::stable_sort(found.begin(), found.end(), [&](std::int64_t a, std::int64_t b) { return is_larger(value(a), value(b)); });
    return found;
  }
  std::array<Entry, network> entries;
  for (std::size_t j = 0; j < found.size(); ++j) entries[j] = {value(found[j]), found[j], true};
  sort_by_network(entries);
  for (std::size_t j = 0; j < found.size(); ++j) found[j] = entries[j].index;
  return found;
}

}  // namespace dodona::ops
