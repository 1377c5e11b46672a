#include "core/grouping.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace dodona {
namespace {

using Member = std::pair<std::int32_t, double>;

std::vector<Member> members_of(const ReferenceOutput& expected, std::span<const double> values) {
  std::vector<Member> members;
  const std::vector<std::int32_t>& group = expected.grouping->group;
  for (std::size_t i = 0; i < group.size(); ++i)
    if (group[i] >= 0 && (expected.unspecified.empty() || !expected.unspecified[i])) members.emplace_back(group[i], values[i]);
  std::sort(members.begin(), members.end());
  return members;
}

}  // namespace

std::vector<GroupDifference> differing_groups(const ReferenceOutput& expected, std::span<const double> actual) {
  const std::vector<Member> wanted = members_of(expected, expected.exact), found = members_of(expected, actual);
  std::vector<Member> missing, surplus;
  std::set_difference(wanted.begin(), wanted.end(), found.begin(), found.end(), std::back_inserter(missing));
  std::set_difference(found.begin(), found.end(), wanted.begin(), wanted.end(), std::back_inserter(surplus));
  // Both lists rise by group, and a group lacks as many members as it has too many.
  std::vector<GroupDifference> differences;
  for (std::size_t i = 0; i < missing.size(); ++i) {
    if (differences.empty() || differences.back().group != missing[i].first) differences.push_back({missing[i].first, {}, {}});
    differences.back().missing.push_back(missing[i].second);
    differences.back().surplus.push_back(surplus[i].second);
  }
  return differences;
}

}  // namespace dodona
