#include "core/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace dodona {
namespace {

constexpr std::uint32_t kOnes = 0xffffffff;

TEST(Philox, BlockFunctionGivesTheKnownAnswersOfRandom123) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}), (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

/// As decimals of eight places, which is how the known answers of the GPU were written down.
std::vector<long> hundred_millionths(PhiloxStream stream, int n) {
  std::vector<long> values;
  for (int i = 0; i < n; ++i) values.push_back(std::lround(static_cast<double>(stream.next_uniform()) * 1e8));
  return values;
}

TEST(Philox, UniformsAreThoseOfCurandForSeedSubsequenceAndOffset) {
  EXPECT_EQ(hundred_millionths({0, 0, 0}, 4), (std::vector<long>{39904648, 88052022, 73571277, 60548186}));
  EXPECT_EQ(hundred_millionths({42, 0, 0}, 4), (std::vector<long>{61295986, 46858650, 7323173, 34086156}));
  EXPECT_EQ(hundred_millionths({42, 1, 0}, 4), (std::vector<long>{1005884, 12624985, 23206617, 71161276}));
  EXPECT_EQ(hundred_millionths({42, 0, 4}, 4), (std::vector<long>{98771864, 32706338, 51390612, 45431560}));
}

TEST(Philox, ConsecutiveWordsWalkThroughTheBlockThenOnToTheNext) {
  PhiloxStream whole(42, 7, 0);
  std::vector<std::uint32_t> words;
  for (int i = 0; i < 24; ++i) words.push_back(whole.next());
  for (std::uint64_t offset = 0; offset < 12; ++offset) {
    PhiloxStream part(42, 7, offset);
    for (std::uint64_t i = 0; i < 12; ++i) EXPECT_EQ(part.next(), words[offset + i]) << offset << " " << i;
  }
}

TEST(Philox, SeedIsTheKeyAndSubsequenceTheUpperHalfOfTheCounterLowWordsFirst) {
  PhiloxStream stream(0x0123456789abcdef, 0xfedcba9876543210, 4 * 0x0011223344556677 + 2);
  const PhiloxBlock first = philox4x32_10({0x44556677, 0x00112233, 0x76543210, 0xfedcba98}, {0x89abcdef, 0x01234567});
  EXPECT_EQ(stream.next(), first[2]);
  EXPECT_EQ(stream.next(), first[3]);
  const PhiloxBlock second = philox4x32_10({0x44556678, 0x00112233, 0x76543210, 0xfedcba98}, {0x89abcdef, 0x01234567});
  EXPECT_EQ(stream.next(), second[0]);
}

TEST(Philox, SteppingCarriesIntoTheUpperWordOfTheOffset) {
  PhiloxStream stream(5, 9, 4 * std::uint64_t{kOnes} + 3);
  EXPECT_EQ(stream.next(), philox4x32_10({kOnes, 0, 9, 0}, {5, 0})[3]);
  EXPECT_EQ(stream.next(), philox4x32_10({0, 1, 9, 0}, {5, 0})[0]);
}

TEST(Philox, UniformIsAboveZeroAndReachesOneForTheLast128Words) {
  EXPECT_EQ(philox_uniform(0), 0x1p-33f);
  EXPECT_EQ(philox_uniform(1), 0x1.8p-32f);
  EXPECT_EQ(philox_uniform(0x80000000), 0.5f);  // the half word that is added is rounded away
  EXPECT_EQ(philox_uniform(kOnes), 1.0f);
  EXPECT_EQ(philox_uniform(kOnes - 127), 1.0f);
  EXPECT_EQ(philox_uniform(kOnes - 128), 0x1.fffffep-1f);
}

TEST(Philox, UniformIsTheSameFusedOrNot) {
  PhiloxStream stream(3, 0, 0);
  for (int i = 0; i < 100000; ++i) {
    const std::uint32_t word = stream.next() >> (i % 32);
    ASSERT_EQ(philox_uniform(word), std::fma(static_cast<float>(word), 0x1p-32f, 0x1p-33f)) << word;
  }
}

}  // namespace
}  // namespace dodona
