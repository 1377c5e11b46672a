#include "quant/int4.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "dodona/error.h"

namespace dodona::quant {
namespace {

TEST(Int4, EvenElementsGoToTheLowNibble) {
  const std::vector<std::int8_t> values{-8, 7, 0, -1, 3, -4};
  std::vector<std::uint8_t> packed(3);
  pack_int4(values, packed);
  EXPECT_EQ(packed, (std::vector<std::uint8_t>{0x78, 0xF0, 0xC3}));
  for (std::size_t j = 0; j < 3; ++j) EXPECT_EQ(packed[j], static_cast<std::uint8_t>((values[2 * j + 1] << 4) | (values[2 * j] & 0xF)));
}

TEST(Int4, EveryByteUnpacksSignedAndUnsignedAndPacksBack) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::vector<std::uint8_t> packed{static_cast<std::uint8_t>(byte)};
    std::vector<std::int8_t> values(2);
    unpack_int4(packed, values);
    for (const int value : values) EXPECT_TRUE(value >= -8 && value <= 7);
    std::vector<std::uint8_t> unsigned_values(2), back(1);
    unpack_uint4(packed, unsigned_values);
    EXPECT_EQ(unsigned_values[0], byte & 15);
    EXPECT_EQ(unsigned_values[1], byte >> 4);
    pack_int4(values, back);
    EXPECT_EQ(back, packed);
  }
}

TEST(Int4, SizesThatDoNotFitThrow) {
  std::vector<std::int8_t> values(3);
  std::vector<std::uint8_t> packed(1), odd(3);
  EXPECT_THROW(pack_int4(values, packed), Error);
  EXPECT_THROW(unpack_int4(packed, values), Error);
  EXPECT_THROW(pack_wna16_zero_points(odd, 3, 1, packed), Error);
}

TEST(Int4, Wna16ZeroPointsArePackedAlongTheChannels) {
  constexpr std::int64_t n = 6, groups = 3;
  std::vector<std::uint8_t> values(n * groups), packed(n / 2 * groups), back(n * groups);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i % 16);
  pack_wna16_zero_points(values, n, groups, packed);
  for (std::int64_t channel = 0; channel < n; ++channel) {
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::uint8_t byte = packed[static_cast<std::size_t>(channel / 2 * groups + g)];
      EXPECT_EQ(channel % 2 == 0 ? byte & 15 : byte >> 4, values[static_cast<std::size_t>(channel * groups + g)]);
      EXPECT_EQ(wna16_zero_point(packed.data(), groups, channel, g), values[static_cast<std::size_t>(channel * groups + g)]);
    }
  }
  unpack_wna16_zero_points(packed, n, groups, back);
  EXPECT_EQ(back, values);
}

TEST(W4a8, ScalesInterleaveByFourOnlyWhenTheGroupsAllowIt) {
  for (const std::int64_t groups : {2, 4, 56, 16}) {
    constexpr std::int64_t n = 24;
    std::vector<std::uint16_t> logical(static_cast<std::size_t>(n * groups)), storage(logical.size()), back(logical.size());
    std::iota(logical.begin(), logical.end(), std::uint16_t{0});
    interleave_w4a8_scales(logical, n, groups, storage);
    for (std::int64_t channel = 0; channel < n; ++channel) {
      for (std::int64_t g = 0; g < groups; ++g) {
        // [G/4, N*4] at (g/4, n*4 + g%4), or [G, N] at (g, n).
        const std::int64_t at = groups % 4 == 0 ? (g / 4) * (n * 4) + channel * 4 + g % 4 : g * n + channel;
        EXPECT_EQ(storage[static_cast<std::size_t>(at)], logical[static_cast<std::size_t>(channel * groups + g)]) << groups;
      }
    }
    EXPECT_EQ(std::set<std::uint16_t>(storage.begin(), storage.end()).size(), storage.size());
    deinterleave_w4a8_scales(storage, n, groups, back);
    EXPECT_EQ(back, logical);
  }
}

}  // namespace
}  // namespace dodona::quant
