#include "ops/draws/mask.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "ops/draws/sorted_row.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

std::vector<float> values_of(std::span<const float> row, bool flushed) {
  std::vector<float> values(row.begin(), row.end());
  if (flushed)
    for (float& x : values) x = quant::hopper::ftz(x);
  return values;
}

}  // namespace

double mask_threshold(std::span<const float> row, std::uint32_t count, bool flushed) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto width = static_cast<std::int64_t>(row.size());
  if (std::int64_t{count} >= width) return -infinity;
  const SortedRow sorted(values_of(row, flushed));
  float least = sorted.least(), most = sorted.most();
  if (most == -infinity || sorted.size() == 0) return -infinity;
  // Threads behind the end of the row bring zeros into its range.
  if (width % (1024 * std::gcd(std::int64_t{4}, width)) != 0) {
    least = std::min(least, 0.0f);
    most = std::max(most, 0.0f);
  }
  const float low = least == -infinity ? std::numeric_limits<float>::lowest() : least - 1.0f;
  return find_threshold(sorted, low, most, [&](double x) { return sorted.count_above(x) >= std::int64_t{count}; }).low;
}

double radix_mask_threshold(std::span<const float> row, std::uint32_t count, bool flushed) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  if (count == 0) return infinity;
  std::vector<float> values = values_of(row, flushed);
  if (count >= values.size() || std::any_of(values.begin(), values.end(), [](float x) { return x != x; })) return -infinity;
  std::nth_element(values.begin(), values.begin() + (count - 1), values.end(), std::greater<>());
  return std::nextafter(values[count - 1], -infinity);
}

}  // namespace dodona::ops
