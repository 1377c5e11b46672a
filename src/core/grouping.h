// Groups whose members may stand in any order: do two orders hold the same ones?
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dodona/op.h"

namespace dodona {

/// One group that does not hold the members it should, repetitions counted. As many are missing as are surplus.
struct GroupDifference {
  std::int32_t group;
  std::vector<double> missing, surplus;  ///< rising
};

/// The groups of `expected.grouping` in which `actual` (row-major, as many elements) holds other members than `expected.exact`, by number.
/// Elements without a group and unspecified ones are not looked at.
std::vector<GroupDifference> differing_groups(const ReferenceOutput& expected, std::span<const double> actual);

}  // namespace dodona
