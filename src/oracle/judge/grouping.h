// The judge `grouping`: each group holds the members it should, in any order; padding is right; and where another output fixes the order
// (a permutation and its inverse), both say the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dodona/op.h"

namespace dodona::oracle {

struct GroupingReport {
  std::vector<std::uint8_t> wrong;  ///< by element
  std::string pattern;              ///< names the group and the missing or doubled member; empty when nothing is wrong
};

/// `actual` has the reference's number of elements; `expected.grouping` is set.
GroupingReport compare_groups(const ReferenceOutput& expected, const Tensor& actual);

}  // namespace dodona::oracle
