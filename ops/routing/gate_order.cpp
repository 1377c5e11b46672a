#include "ops/routing/gate_order.h"

#include <algorithm>
#include <vector>

namespace dodona::ops {

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

}  // namespace dodona::ops
