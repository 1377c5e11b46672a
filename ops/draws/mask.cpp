#include "ops/draws/mask.h"

#include <limits>
#include <numeric>

#include "ops/draws/sorted_row.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {

double mask_threshold(std::span<const float> row, std::uint32_t count, bool flushed) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto width = static_cast<std::int64_t>(row.size());
  if (std::int64_t{count} >= width) return -infinity;
  std::vector<float> values(row.begin(), row.end());
  if (flushed)
    for (float& x : values) x = quant::hopper::ftz(x);
  const SortedRow sorted(values);
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

}  // namespace dodona::ops
