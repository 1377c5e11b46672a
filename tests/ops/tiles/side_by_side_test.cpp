// How lanes of sums are shared out among vectors side by side, for as many vectors as any tier has registers for.
#define DODONA_TIER generic
#define DODONA_TIER_generic 1
#include <gtest/gtest.h>

#include <vector>

#include "ops/tiles/panel/panel_core.h"

namespace dodona::generic {
namespace {

/// Vectors of each group, for so many lanes.
template <int most>
std::vector<int> groups_of(std::int64_t lanes) {
  std::vector<int> groups;
  std::int64_t next = 0;
  side_by_side<most>(lanes, [&](auto vectors, std::int64_t lane) {
    EXPECT_EQ(lane, next) << most << " vectors, " << lanes << " lanes";
    next = lane + vectors * sum_lanes;
    groups.push_back(vectors);
  });
  EXPECT_GE(next, lanes);
  EXPECT_LT(next, lanes + sum_lanes);
  return groups;
}

template <int most>
void check() {
  for (std::int64_t lanes = 0; lanes <= 40 * sum_lanes; ++lanes)
    for (const int vectors : groups_of<most>(lanes)) {
      EXPECT_GE(vectors, 1);
      EXPECT_LE(vectors, most);
      if (lanes > sum_lanes && most > 2) EXPECT_GT(vectors, 1) << most << " vectors, " << lanes << " lanes: one is alone";
    }
}

TEST(SideBySide, EveryLaneHasOnePlaceAndNoVectorIsAlone) {
  check<1>();
  check<2>();
  check<3>();
  check<4>();
  EXPECT_EQ(groups_of<4>(128), (std::vector<int>{4, 4}));
  EXPECT_EQ(groups_of<3>(48), (std::vector<int>{3}));
}

}  // namespace
}  // namespace dodona::generic
