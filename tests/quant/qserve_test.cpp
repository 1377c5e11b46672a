#include "quant/qserve.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "dodona/error.h"

namespace dodona::quant {
namespace {

/// The packing as a chain of reshapes and permutations: [N/32, 2, 2, 8, K/32, 2, 4, 4] with axes (tile n, a, b, c, tile k, d, e, f) stored
/// in the order (tile n, tile k, c, e, d, b, f), a choosing the nibble.
std::vector<std::uint8_t> pack_by_permutation(const std::vector<std::uint8_t>& values, int rows, int columns) {
  std::vector<std::uint8_t> packed;
  const auto value = [&](int tn, int a, int b, int c, int tk, int d, int e, int f) {
    const int n = ((tn * 2 + a) * 2 + b) * 8 + c, k = ((tk * 2 + d) * 4 + e) * 4 + f;
    return values[static_cast<std::size_t>(n * columns + k)];
  };
  for (int tn = 0; tn < rows / 32; ++tn)
    for (int tk = 0; tk < columns / 32; ++tk)
      for (int c = 0; c < 8; ++c)
        for (int e = 0; e < 4; ++e)
          for (int d = 0; d < 2; ++d)
            for (int b = 0; b < 2; ++b)
              for (int f = 0; f < 4; ++f)
                packed.push_back(static_cast<std::uint8_t>(value(tn, 0, b, c, tk, d, e, f) | value(tn, 1, b, c, tk, d, e, f) << 4));
  return packed;
}

TEST(Qserve, LocationsAreABijectionOfA64x64Matrix) {
  std::set<std::int64_t> seen;
  for (int n = 0; n < 64; ++n) {
    for (int k = 0; k < 64; ++k) {
      const QserveLocation at = qserve_location(n, k, 64);
      EXPECT_TRUE(at.byte >= 0 && at.byte < 64 * 32);
      EXPECT_TRUE(at.shift == 0 || at.shift == 4);
      seen.insert(at.byte * 2 + at.shift / 4);
    }
  }
  EXPECT_EQ(seen.size(), 64u * 64u);
}

TEST(Qserve, PackingEqualsThePermutationChain) {
  constexpr int rows = 64, columns = 96;
  std::vector<std::uint8_t> values(rows * columns), packed(rows * columns / 2), back(rows * columns);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>((i * 7 + i / 13 + i / 96 * 5) % 16);
  pack_qserve(values, rows, columns, packed);
  EXPECT_EQ(packed, pack_by_permutation(values, rows, columns));
  unpack_qserve(packed, rows, columns, back);
  EXPECT_EQ(back, values);
}

TEST(Qserve, SizesThatAreNotMultiplesOf32Throw) {
  std::vector<std::uint8_t> values(32 * 16), packed(32 * 8);
  EXPECT_THROW(pack_qserve(values, 32, 16, packed), Error);
  EXPECT_THROW(unpack_qserve(packed, 16, 32, values), Error);
}

TEST(Qserve, ScalePositionPHoldsChannelPMod4Times8PlusPOver4) {
  for (int p = 0; p < 96; ++p) {
    const int channel = p / 32 * 32 + p % 4 * 8 + p % 32 / 4;
    EXPECT_EQ(qserve_scale_position(channel), p);
  }
  constexpr std::int64_t groups = 2, channels = 64;
  std::vector<std::int8_t> logical(groups * channels), storage(logical.size()), back(logical.size());
  std::iota(logical.begin(), logical.end(), std::int8_t{0});
  permute_qserve_scales(logical, groups, channels, storage);
  const std::vector<std::int8_t> first(storage.begin(), storage.begin() + 6);
  EXPECT_EQ(first, (std::vector<std::int8_t>{0, 8, 16, 24, 1, 9}));
  unpermute_qserve_scales(storage, groups, channels, back);
  EXPECT_EQ(back, logical);
}

TEST(Qserve, GroupWeightWrapsAroundLikeABytewiseAdd) {
  EXPECT_EQ(qserve_group_weight(15, 16, -128), 112);
  EXPECT_EQ(qserve_group_weight(0, 16, -128), -128);
  EXPECT_EQ(qserve_group_weight(8, 16, -128), 0);
  EXPECT_EQ(qserve_group_weight(15, 16, 0), static_cast<std::int8_t>(240));
  EXPECT_EQ(qserve_group_weight(15, 17, 1), 0);
}

}  // namespace
}  // namespace dodona::quant
