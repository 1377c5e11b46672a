#include "oracle/judge/grouping.h"

#include <algorithm>

#include "core/grouping.h"
#include "quant/element.h"

namespace dodona::oracle {
namespace {

constexpr std::size_t groups_named = 3;

std::string number(double value) {
  return std::to_string(static_cast<std::int64_t>(value));
}

/// What the member `value` is to group `group`, which holds it once too often.
std::string surplus_member(const ReferenceOutput& expected, std::int32_t group, double value) {
  std::int32_t home = -1;
  for (std::size_t i = 0; i < expected.exact.size(); ++i) {
    if (expected.exact[i] != value || expected.grouping->group[i] < 0) continue;
    home = expected.grouping->group[i];
    if (home == group) return "holds " + number(value) + " once too often";
  }
  const std::string noun = expected.grouping->noun;
  return "holds " + number(value) + ", " + (home >= 0 ? "a member of " + noun + " " + std::to_string(home) : "a member of no " + noun);
}

std::string describe(const ReferenceOutput& expected, const GroupDifference& difference) {
  std::string text = expected.grouping->noun + " " + std::to_string(difference.group) + " lacks " + number(difference.missing.front());
  if (difference.missing.size() > 1) text += " (and " + std::to_string(difference.missing.size() - 1) + " more)";
  return text + " and " + surplus_member(expected, difference.group, difference.surplus.front());
}

/// Marks the places of the surplus members: of several equal ones the last.
void mark(const ReferenceOutput& expected, const std::vector<double>& actual, const std::vector<GroupDifference>& differences,
          std::vector<std::uint8_t>& wrong) {
  auto open = differences;
  for (std::size_t i = actual.size(); i-- > 0;) {
    const std::int32_t group = expected.grouping->group[i];
    if (group < 0 || (!expected.unspecified.empty() && expected.unspecified[i])) continue;
    const auto found =
        std::lower_bound(open.begin(), open.end(), group, [](const GroupDifference& d, std::int32_t g) { return d.group < g; });
    if (found == open.end() || found->group != group) continue;
    const auto member = std::find(found->surplus.begin(), found->surplus.end(), actual[i]);
    if (member == found->surplus.end()) continue;
    found->surplus.erase(member);
    wrong[i] = 1;
  }
}

}  // namespace

GroupingReport compare_groups(const ReferenceOutput& expected, const Tensor& actual) {
  const Grouping& grouping = *expected.grouping;
  std::vector<double> values(expected.exact.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = quant::get(actual, static_cast<std::int64_t>(i));
  GroupingReport report{std::vector<std::uint8_t>(values.size(), 0), {}};
  std::vector<std::string> findings;

  const std::vector<GroupDifference> differences = differing_groups(expected, values);
  mark(expected, values, differences, report.wrong);
  findings.reserve(differences.size());
  for (const GroupDifference& difference : differences) findings.push_back(describe(expected, difference));

  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == expected.exact[i] || (!expected.unspecified.empty() && expected.unspecified[i])) continue;
    const std::int32_t group = grouping.group[i];
    const std::string here = "element " + std::to_string(i) + " holds " + number(values[i]);
    if (group < 0) {
      findings.push_back("padding: " + here + ", expected " + number(expected.exact[i]));
    } else if (!grouping.follows.empty() && differences.empty()) {
      findings.push_back(grouping.noun + " " + std::to_string(group) + ": " + here + " where " + grouping.follows + " puts " +
                         number(expected.exact[i]));
    } else {
      continue;
    }
    report.wrong[i] = 1;
  }

  for (std::size_t k = 0; k < std::min(findings.size(), groups_named); ++k) report.pattern += (k > 0 ? "; " : "") + findings[k];
  if (findings.size() > groups_named) report.pattern += "; and " + std::to_string(findings.size() - groups_named) + " more";
  return report;
}

}  // namespace dodona::oracle
