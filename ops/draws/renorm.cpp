#include "ops/draws/renorm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/draws/blocked_row.h"
#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

constexpr double lowest = -std::numeric_limits<double>::infinity();
/// The least sum that is divided by, and the sum up to which a row that is kept whole is not divided.
constexpr double least_sum = 1e-8;

double units_of(std::span<const float> row) {
  return f32_eps * additions_of(static_cast<std::int64_t>(row.size()));
}

double top_of(const SortedRow& sorted) {
  return std::max(0.0f, sorted.most());
}

Bounded sum_of(double sum, double units) {
  return sum > least_sum ? Bounded{sum, sum * units} : Bounded{least_sum, 0.0};
}

/// A row that is kept whole, divided by its sum.
Renorm whole(std::span<const float> row) {
  double sum = 0, size = 0;
  for (const float x : row) {
    sum += static_cast<double>(x);
    size += std::fabs(static_cast<double>(x));
  }
  const double slack = size * units_of(row);
  Renorm renorm{lowest, {sum, slack}, true};
  if (sum <= least_sum) renorm.divisor = {1.0};
  renorm.divisor.open = std::fabs(sum - least_sum) <= slack;
  return renorm;
}

/// Whether the search for a count moves its lower end where denormals are zeros.
bool raised_without_denormals(std::span<const float> row, std::int64_t count) {
  const auto is_denormal = [](float x) { return std::fabs(static_cast<double>(x)) < flush_floor; };
  std::vector<float> flushed(row.begin(), row.end());
  std::replace_if(flushed.begin(), flushed.end(), is_denormal, 0.0f);
  const SortedRow sorted(flushed);
  return find_threshold(sorted, 0.0, top_of(sorted), [&](double x) { return sorted.count_above(x) >= count; }).raised;
}

/// Of a radix search for a mass, which is a share of the row's sum: atomics add up in any order.
struct SharedMass {
  double bound, slack;

  SharedMass(const SortedRow& sorted, const Cut& cut) {
    const double total = sorted.sum_above(lowest);
    bound = static_cast<double>(*cut.mass) * total;
    slack = f32_eps * (static_cast<double>(sorted.size()) + 4) * total * std::max(1.0, std::fabs(static_cast<double>(*cut.mass)));
  }
};

/// What is kept where a radix search ends at `last`: all that is not below it. A sum that is too small counts as 1e-8, or as 1 beside a
/// mass.
Renorm kept_from(const SortedRow& sorted, float last, const Cut& cut, double units) {
  const double low = last > 0 ? static_cast<double>(std::nextafter(last, -std::numeric_limits<float>::infinity())) : 0.0;
  const double sum = sorted.sum_above(low), slack = sum * units;
  Renorm renorm{low, sum_of(sum, units)};
  if (cut.mass && sum <= least_sum) renorm.divisor = {1.0};
  renorm.divisor.open = std::fabs(sum - least_sum) <= slack;
  return renorm;
}

Renorm exact_radix(const SortedRow& sorted, const Cut& cut, double units) {
  if (cut.count) {
    if (*cut.count == 0) return {std::numeric_limits<double>::infinity(), {1.0}};
    const std::int64_t kept = *cut.count, size = sorted.size();
    return kept_from(sorted, kept < size ? sorted.values()[static_cast<std::size_t>(size - kept)] : 0.0f, cut, units);
  }
  const SharedMass mass(sorted, cut);
  // From the largest down, until what is not below is enough.
  float last = sorted.most();
  bool doubtful = false;
  while (last > 0) {
    const float next = sorted.most_up_to(std::nextafter(static_cast<double>(last), lowest));
    const double sum = sorted.sum_above(static_cast<double>(next));
    doubtful = doubtful || std::fabs(sum - mass.bound) <= mass.slack;
    if (sum >= mass.bound) break;
    last = next;
  }
  Renorm renorm = kept_from(sorted, last, cut, units);
  renorm.doubtful = doubtful;
  return renorm;
}

}  // namespace

bool is_no_row_of_probabilities(std::span<const float> row) {
  return std::any_of(row.begin(), row.end(), [](float x) { return !(x >= 0) || std::isinf(x); });
}

Renorm exact_renorm(const SortedRow& sorted, std::span<const float> row, const Cut& cut) {
  const double units = units_of(row);
  if (cut.search == Search::radix) return exact_radix(sorted, cut, units);
  if (cut.count) {
    if (*cut.count >= row.size()) return {lowest, {1.0}};
    const auto enough = [&](double x) { return sorted.count_above(x) >= static_cast<std::int64_t>(*cut.count); };
    const Threshold found = find_threshold(sorted, 0.0, top_of(sorted), enough);
    Renorm renorm{found.low, found.raised ? sum_of(sorted.sum_above(found.low), units) : Bounded{1.0}};
    // Where denormals are flushed fewer are positive, and the search may never move.
    renorm.divisor.open = found.raised && !raised_without_denormals(row, *cut.count);
    return renorm;
  }
  const double bound = *cut.mass;
  if (bound >= 1) return whole(row);
  bool doubtful = false;
  const Threshold found = find_threshold(sorted, 0.0, top_of(sorted), [&](double x) {
    const double sum = sorted.sum_above(x);
    doubtful = doubtful || (sum > 0 && std::fabs(sum - bound) <= units * sum);
    return sum >= bound;
  });
  Renorm renorm{found.low, found.raised ? sum_of(sorted.sum_above(found.low), units) : Bounded{1.0}};
  renorm.doubtful = doubtful;
  return renorm;
}

std::vector<Renorm> other_renorms(const SortedRow& sorted, std::span<const float> row, const Cut& cut) {
  std::vector<Renorm> found;
  if (cut.search == Search::radix && cut.mass) {
    const SharedMass mass(sorted, cut);
    for (float last = sorted.most(); last > 0;) {
      const float next = sorted.most_up_to(std::nextafter(static_cast<double>(last), lowest));
      if (sorted.sum_above(static_cast<double>(last)) - mass.slack >= mass.bound) break;
      if (sorted.sum_above(static_cast<double>(next)) + mass.slack >= mass.bound)
        found.push_back(kept_from(sorted, last, cut, units_of(row)));
      last = next;
    }
    return found;
  }
  if (!cut.mass || *cut.mass >= 1) return found;
  const double units = units_of(row), bound = *cut.mass;
  const auto may_be_enough = [&](double sum) { return sum * (1 + units) >= bound; };
  const auto may_be_short = [&](double sum) { return sum * (1 - units) < bound; };
  // Every value that sums within their error may stop at, from the largest.
  for (double value = sorted.most(); value > 0;) {
    const double next = sorted.most_up_to(std::nextafter(value, lowest));
    const double above = sorted.sum_above(value), from = sorted.sum_above(next);
    if (!may_be_short(above)) break;
    const bool last = !(next > 0);
    const double low = last ? 0.0 : next;
    if (may_be_enough(from)) found.push_back({low, sum_of(from, units)});
    // Nothing positive is left out: a search that never found enough divides by 1, and so does one that never had to look.
    if (last) found.push_back({low, {1.0}});
    value = next;
  }
  return found;
}

void hopper_renorm(std::span<const float> row, const Cut& cut, float* to) {
  namespace hw = quant::hopper;
  const BlockedRow blocked(row);
  const auto scaled = [&](double low, float factor) {
    for (std::size_t i = 0; i < row.size(); ++i)
      to[i] = static_cast<double>(blocked.at(static_cast<std::int64_t>(i))) > low ? hw::mul(row[i], factor) : 0.0f;
  };
  if (cut.count && *cut.count >= row.size()) return scaled(lowest, 1.0f);
  if (cut.mass && *cut.mass >= 1) {
    const float sum = blocked.sum_by_threads(), factor = hw::rcp(sum <= static_cast<float>(least_sum) ? 1.0f : sum);
    for (std::size_t i = 0; i < row.size(); ++i) to[i] = hw::mul(row[i], factor);
    return;
  }
  const SortedRow sorted(blocked.elements());
  const Threshold found = find_threshold(sorted, 0.0, blocked.most(), [&](double x) {
    return cut.count ? sorted.count_above(x) >= static_cast<std::int64_t>(*cut.count) : blocked.sum({x}) >= *cut.mass;
  });
  const float kept = cut.count ? blocked.sum_beside_count({found.low}) : blocked.sum({found.low});
  const double sum = found.raised ? static_cast<double>(kept) : 1.0;
  scaled(found.low, hw::rcp(static_cast<float>(std::max(sum, least_sum))));
}

}  // namespace dodona::ops
