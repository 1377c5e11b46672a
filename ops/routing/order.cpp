#include "ops/routing/order.h"

#include <algorithm>
#include <numeric>

namespace dodona::ops {
namespace {

/// The groups in order: falling sum of the two best keys, lower index first.
std::vector<std::int64_t> ordered_groups(const Choice& choice, std::span<const float> keys, float (*add)(float, float), ChoiceRule rule) {
  const auto groups = static_cast<std::size_t>(choice.groups), members = keys.size() / groups;
  std::vector<float> sums(groups);
  for (std::size_t j = 0; j < groups; ++j) {
    float first = lowest_key(choice.type), second = first;
    for (std::size_t e = j * members; e < (j + 1) * members; ++e) {
      second = std::max(second, std::min(first, keys[e]));
      first = std::max(first, keys[e]);
    }
    sums[j] = as_key(rule == ChoiceRule::group_by_maximum ? first : rounded_score(choice.type, add(first, second)));
  }
  std::vector<std::int64_t> order(groups);
  std::iota(order.begin(), order.end(), 0);
  if (rule == ChoiceRule::ties_to_higher_index) std::reverse(order.begin(), order.end());
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return sums[static_cast<std::size_t>(a)] > sums[static_cast<std::size_t>(b)]; });
  return order;
}

/// Whether `kept_groups` groups may be the best of all with all of `kept` among them and none of `dropped`.
bool can_be_kept(std::span<const GateKey> groups, std::int64_t kept_groups, std::vector<bool> kept, std::vector<bool> dropped) {
  const auto group_count = static_cast<std::int64_t>(groups.size());
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  // The order of groups is transitive, so one step closes both sets.
  const std::vector<bool> holds_chosen = kept, holds_overtaking = dropped;
  for (std::int64_t j = 0; j < group_count; ++j) {
    for (std::int64_t other = 0; other < group_count; ++other) {
      if (holds_chosen[at(other)] && stands_before(groups, j, other)) kept[at(j)] = true;
      if (holds_overtaking[at(other)] && stands_before(groups, other, j)) dropped[at(j)] = true;
    }
  }
  std::int64_t least = 0, most = 0;
  for (std::int64_t j = 0; j < group_count; ++j) {
    if (kept[at(j)] && dropped[at(j)]) return false;
    least += kept[at(j)] ? 1 : 0;
    most += dropped[at(j)] ? 0 : 1;
  }
  return least <= kept_groups && kept_groups <= most;
}

}  // namespace

float lowest_key(DType type) {
  return rounded_score(type, -std::numeric_limits<float>::max());
}

std::vector<std::int64_t> kept_groups(const Choice& choice, std::span<const float> keys, float (*add)(float, float), ChoiceRule rule) {
  std::vector<std::int64_t> kept = ordered_groups(choice, keys, add, rule);
  kept.resize(static_cast<std::size_t>(choice.kept_groups));
  std::sort(kept.begin(), kept.end());
  return kept;
}

std::vector<std::int64_t> choose(const Choice& choice, std::span<const float> keys, float (*add)(float, float), ChoiceRule rule) {
  const std::vector<std::int64_t> kept = kept_groups(choice, keys, add, rule);
  const std::int64_t members = static_cast<std::int64_t>(keys.size()) / choice.groups;
  std::vector<float> own(keys.begin(), keys.end());
  std::vector<std::int64_t> candidates;
  for (std::int64_t e = 0; e < static_cast<std::int64_t>(keys.size()); ++e) {
    const bool dropped = !std::binary_search(kept.begin(), kept.end(), e / members);
    if (dropped && rule != ChoiceRule::dropped_count_as_zero) continue;
    if (dropped) own[static_cast<std::size_t>(e)] = 0.0f;
    candidates.push_back(e);
  }
  if (rule == ChoiceRule::ties_to_higher_index) std::reverse(candidates.begin(), candidates.end());
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](std::int64_t a, std::int64_t b) { return own[static_cast<std::size_t>(a)] > own[static_cast<std::size_t>(b)]; });
  candidates.resize(static_cast<std::size_t>(choice.experts));
  if (rule == ChoiceRule::begins_at_minus_one || rule == ChoiceRule::begins_at_zero) {
    const float begin = rule == ChoiceRule::begins_at_zero ? 0.0f : -1.0f;
    for (std::int64_t& chosen : candidates)
      if (!(own[static_cast<std::size_t>(chosen)] > begin)) chosen = 0;
  }
  return candidates;
}

std::vector<GateKey> group_keys(DType type, std::int64_t groups, std::span<const GateKey> experts) {
  const std::size_t members = experts.size() / static_cast<std::size_t>(groups);
  const double floor = lowest_key(type);
  std::vector<GateKey> keys;
  for (std::size_t j = 0; j < static_cast<std::size_t>(groups); ++j) {
    std::vector<GateKey> sorted(experts.begin() + static_cast<std::ptrdiff_t>(j * members),
                                experts.begin() + static_cast<std::ptrdiff_t>((j + 1) * members));
    sorted.push_back({floor, floor, {~std::uint64_t{0}, 0}});
    sorted.push_back(sorted.back());
    for (GateKey& key : sorted) key = {std::max(key.low, floor), std::max(key.high, floor), key.origin};
    std::sort(sorted.begin(), sorted.end(),
              [](const GateKey& a, const GateKey& b) { return a.low != b.low ? a.low > b.low : a.origin > b.origin; });
    // Order statistics are monotone: the sum of the two best lies between those of the lower and of the upper ends.
    double first = floor, second = floor;
    for (const GateKey& key : sorted) {
      second = std::max(second, std::min(first, key.high));
      first = std::max(first, key.high);
    }
    const Interval sum = sum_interval(type, {sorted[0].low, first}, {sorted[1].low, second});
    // Two groups whose best two have the same inputs tie, if no third can come between.
    const auto settled = [&](const GateKey& key) { return key.high <= sorted[1].low || key.origin == sorted[1].origin; };
    const bool certain = std::all_of(sorted.begin() + 2, sorted.end(), settled);
    const auto packed = [](const GateKey& key) { return key.origin[0] << 32 | key.origin[1]; };
    std::array<std::uint64_t, 2> origin{packed(sorted[0]), packed(sorted[1])};
    if (origin[0] > origin[1]) std::swap(origin[0], origin[1]);
    if (!certain) origin = {~std::uint64_t{0}, j};
    keys.push_back({sum.low, sum.high, origin});
  }
  return keys;
}

bool stands_before(std::span<const GateKey> keys, std::int64_t a, std::int64_t b) {
  const GateKey &x = keys[static_cast<std::size_t>(a)], &y = keys[static_cast<std::size_t>(b)];
  if (x.origin == y.origin) return a < b;
  return y.high < x.low || (y.high == x.low && a < b);
}

bool is_legitimate_choice(std::span<const GateKey> experts, std::span<const GateKey> groups, std::int64_t kept_groups,
                          std::span<const std::int64_t> chosen) {
  const auto count = static_cast<std::int64_t>(experts.size()), group_count = static_cast<std::int64_t>(groups.size());
  const std::int64_t members = count / group_count;
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };

  std::vector<bool> is_chosen(experts.size()), kept(groups.size()), dropped(groups.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::int64_t expert = chosen[i];
    if (expert < 0 || expert >= count || is_chosen[at(expert)]) return false;
    for (std::size_t earlier = 0; earlier < i; ++earlier)
      if (stands_before(experts, expert, chosen[earlier])) return false;
    is_chosen[at(expert)] = true;
    kept[at(expert / members)] = true;
  }

  for (std::int64_t e = 0; e < count; ++e) {
    if (is_chosen[at(e)]) continue;
    const auto overtaken = [&](std::int64_t c) { return stands_before(experts, e, c); };
    if (std::any_of(chosen.begin(), chosen.end(), overtaken)) dropped[at(e / members)] = true;
  }
  return can_be_kept(groups, kept_groups, kept, dropped);
}

bool is_legitimate_masked_choice(std::span<const GateKey> experts, std::span<const GateKey> groups, std::int64_t kept_groups,
                                 std::span<const std::int64_t> chosen, const std::vector<bool>& kept, const std::vector<bool>& dropped) {
  const std::size_t members = experts.size() / groups.size();
  std::vector<bool> is_chosen(experts.size()), kept_group(groups.size()), dropped_group(groups.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const auto expert = static_cast<std::size_t>(chosen[i]);
    if (is_chosen[expert]) return false;
    is_chosen[expert] = true;
    if (kept[i]) kept_group[expert / members] = true;
    if (dropped[i]) dropped_group[expert / members] = true;
  }
  for (std::size_t e = 0; e < experts.size(); ++e)
    if (!is_chosen[e] && experts[e].low > 0) dropped_group[e / members] = true;
  return can_be_kept(groups, kept_groups, std::move(kept_group), std::move(dropped_group));
}

std::optional<std::vector<std::int64_t>> other_choice(const Tensor& ids, const ReferenceOutput& expected, std::int64_t begin,
                                                      std::int64_t count) {
  std::vector<std::int64_t> chosen;
  bool same = true;
  for (std::int64_t k = begin; k < begin + count; ++k) {
    chosen.push_back(static_cast<std::int64_t>(quant::get(ids, k)));
    same = same && static_cast<double>(chosen.back()) == expected.exact[static_cast<std::size_t>(k)];
  }
  return same ? std::nullopt : std::optional(chosen);
}

}  // namespace dodona::ops
