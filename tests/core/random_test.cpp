#include "core/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "core/philox.h"
#include "dodona/error.h"

namespace dodona {
namespace {

// The expected numbers in this file came from a plain Python program (integers and its math module) written from the layout in random.h.

const Stream kStream(0x0123456789abcdef, "model.layers.3.mlp.experts.17.gate_proj.weight");

std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

/// FNV-1a of n floats, little-endian.
std::uint64_t digest(std::uint64_t n, const std::function<float(std::uint64_t)>& element) {
  std::uint64_t hash = fnv1a_64("");
  for (std::uint64_t i = 0; i < n; ++i) {
    for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (bits_of(element(i)) >> shift & 0xff)) * 0x100000001b3;
  }
  return hash;
}

// ---- Known answers ----

TEST(Random, TensorIdIsFnv1aOfItsName) {
  EXPECT_EQ(fnv1a_64(""), 0xcbf29ce484222325);
  EXPECT_EQ(fnv1a_64("a"), 0xaf63dc4c8601ec8c);
  EXPECT_EQ(fnv1a_64("foobar"), 0x85944171f73967e8);
  EXPECT_EQ(kStream.tensor, 0xa77a621493562064);
  EXPECT_NE(fnv1a_64("\xc3\xa9"), fnv1a_64("e"));
}

TEST(Random, WordsAreTheKnownAnswers) {
  const std::vector<std::pair<std::uint64_t, std::uint32_t>> table{
      {0, 0x62f8318a},           {1, 0xa3dd2faa},           {2, 0x889c18f4},
      {3, 0xc0a05217},           {4, 0x58ff610d},           {17179869183, 0x33d8fcea},
      {17179869184, 0xff764c47}, {17179869189, 0x57cf389b}, {~std::uint64_t{0}, 0x11fbedac}};
  for (const auto& [index, expected] : table) {
    EXPECT_EQ(word(kStream, index), expected) << index;
  }
}

TEST(Random, WordsAreACurandStreamWithTheTensorAsSubsequence) {
  PhiloxStream stream(kStream.seed, kStream.tensor, 1001);
  for (std::uint64_t i = 1001; i < 1020; ++i) EXPECT_EQ(word(kStream, i), stream.next());
}

TEST(Random, UniformsAreTheKnownAnswers) {
  const std::vector<std::uint32_t> expected{0x3ec5f063, 0x3f23dd30, 0x3f089c19, 0x3f40a052, 0x3eb1fec2, 0x3ea5b599};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(bits_of(uniform(kStream, i)), expected[i]) << i;
  EXPECT_EQ(digest(20000, [](std::uint64_t i) { return uniform({7, "x"}, i); }), 0x038551ca4fc9ce87);
}

TEST(Random, NormalsAreTheKnownAnswers) {
  const std::vector<std::uint32_t> expected{0xbf60cfd6, 0xbf8809df, 0x3c8d1d84, 0xbf8f70a8, 0xbf262178, 0x3fa67fa3, 0xbf16f868, 0xbe90a29a};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(bits_of(normal(kStream, i)), expected[i]) << i;
  EXPECT_EQ(bits_of(normal(kStream, 1000000000001)), 0xbd9cbfbd);
  EXPECT_EQ(digest(20000, [](std::uint64_t i) { return normal({7, "x"}, i); }), 0x1155034ae8ca968d);
}

TEST(Random, IntegersBelowAreTheKnownAnswers) {
  const std::vector<std::uint64_t> expected{6, 7, 3, 5, 3, 4, 3, 4, 9, 8, 1, 7, 4, 7, 8, 0};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(integer_below(kStream, i, 10), expected[i]) << i;
  EXPECT_EQ(integer_below(kStream, 5, ~std::uint64_t{0}), 7604466902551856858u);
  EXPECT_EQ(integer_below(kStream, 6, 129280), 39143u);
  EXPECT_EQ(integer_below(kStream, 7, 1), 0u);
}

TEST(Random, PermutationIsTheKnownAnswer) {
  EXPECT_EQ(permutation(kStream, 16), (std::vector<std::int64_t>{7, 4, 15, 5, 13, 14, 2, 3, 11, 8, 1, 9, 6, 10, 12, 0}));
}

// ---- Bulk and random access ----

TEST(Random, BulkFillsEqualRandomAccessFromAnyStartToAnyEnd) {
  for (const std::uint64_t base : {std::uint64_t{0}, std::uint64_t{17179869180}, std::uint64_t{1} << 60}) {
    for (std::uint64_t begin = base; begin < base + 9; ++begin) {
      for (std::size_t n = 0; n < 14; ++n) {
        std::vector<std::uint32_t> words(n);
        std::vector<float> uniforms(n), normals(n);
        fill_words(kStream, begin, words);
        fill_uniform(kStream, begin, uniforms);
        fill_normal(kStream, begin, normals);
        for (std::size_t i = 0; i < n; ++i) {
          ASSERT_EQ(words[i], word(kStream, begin + i)) << begin << "+" << i;
          ASSERT_EQ(uniforms[i], uniform(kStream, begin + i)) << begin << "+" << i;
          ASSERT_EQ(normals[i], normal(kStream, begin + i)) << begin << "+" << i;
        }
      }
    }
  }
}

TEST(Random, LongFillsEqualFillsInPieces) {
  std::vector<float> whole(10007), pieces(10007);
  fill_normal(kStream, 3, whole);
  for (std::size_t from = 0; from < pieces.size(); from += 101) {
    fill_normal(kStream, 3 + from, std::span(pieces).subspan(from, std::min<std::size_t>(101, pieces.size() - from)));
  }
  EXPECT_EQ(whole, pieces);
}

// ---- Distribution ----

/// Kolmogorov-Smirnov distance of a sample from a distribution function, times sqrt(n). Above 1.95 with probability 0.001.
double kolmogorov_smirnov(std::vector<float> sample, const std::function<double(double)>& cdf) {
  std::sort(sample.begin(), sample.end());
  const auto n = static_cast<double>(sample.size());
  double distance = 0;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    const double f = cdf(sample[i]), rank = static_cast<double>(i);
    distance = std::max({distance, f - rank / n, (rank + 1) / n - f});
  }
  return distance * std::sqrt(n);
}

double moment(const std::vector<float>& sample, int power) {
  double sum = 0;
  for (const float x : sample) sum += std::pow(static_cast<double>(x), power);
  return sum / static_cast<double>(sample.size());
}

double normal_cdf(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

TEST(Random, UniformsAreUniform) {
  std::vector<float> sample(200000);
  fill_uniform({1, "uniform"}, 0, sample);
  EXPECT_GT(*std::min_element(sample.begin(), sample.end()), 0.0f);
  EXPECT_LE(*std::max_element(sample.begin(), sample.end()), 1.0f);
  EXPECT_LT(kolmogorov_smirnov(sample, [](double x) { return x; }), 1.95);
}

TEST(Random, NormalsAreNormal) {
  std::vector<float> sample(200000);
  fill_normal({1, "normal"}, 0, sample);
  EXPECT_LT(kolmogorov_smirnov(sample, normal_cdf), 1.95);
  // Four standard errors each; E x^k = 0, 1, 0, 3 and Var x^k = 1, 2, 15, 96.
  const double error = 4 / std::sqrt(static_cast<double>(sample.size()));
  EXPECT_NEAR(moment(sample, 1), 0, error);
  EXPECT_NEAR(moment(sample, 2), 1, error * std::sqrt(2.0));
  EXPECT_NEAR(moment(sample, 3), 0, error * std::sqrt(15.0));
  EXPECT_NEAR(moment(sample, 4), 3, error * std::sqrt(96.0));
}

TEST(Random, BothMembersOfANormalPairAreNormalAndUncorrelated) {
  std::vector<float> sample(200000), even, odd;
  fill_normal({2, "normal"}, 0, sample);
  double product = 0;
  for (std::size_t i = 0; i < sample.size(); i += 2) {
    even.push_back(sample[i]);
    odd.push_back(sample[i + 1]);
    product += static_cast<double>(sample[i]) * sample[i + 1];
  }
  EXPECT_LT(kolmogorov_smirnov(even, normal_cdf), 1.95);
  EXPECT_LT(kolmogorov_smirnov(odd, normal_cdf), 1.95);
  const auto pairs = static_cast<double>(even.size());
  EXPECT_NEAR(product / pairs, 0, 4 / std::sqrt(pairs));
}

TEST(Random, IntegersBelowAreEquallyFrequent) {
  constexpr int kDraws = 160000, kCells = 160;
  std::vector<int> counts(kCells);
  for (int i = 0; i < kDraws; ++i) ++counts[integer_below({3, "below"}, static_cast<std::uint64_t>(i), kCells)];
  double chi_square = 0;
  for (const int count : counts) chi_square += std::pow(count - kDraws / kCells, 2) / (kDraws / kCells);
  EXPECT_NEAR(chi_square, kCells - 1, 4 * std::sqrt(2.0 * (kCells - 1)));
}

TEST(Random, StreamsOfOtherSeedsAndTensorsAreUnrelated) {
  constexpr std::size_t kCount = 100000;
  std::vector<float> base(kCount), other(kCount);
  fill_normal({1, "a"}, 0, base);
  for (const Stream stream : {Stream(2, "a"), Stream(1, "b"), Stream(std::uint64_t{1} << 32, "a")}) {
    fill_normal(stream, 0, other);
    double product = 0;
    for (std::size_t i = 0; i < kCount; ++i) product += static_cast<double>(base[i]) * other[i];
    EXPECT_NEAR(product / kCount, 0, 4 / std::sqrt(static_cast<double>(kCount)));
  }
}

// ---- Permutations, limits ----

TEST(Random, PermutationHoldsEveryNumberOnce) {
  for (const std::int64_t n : {0, 1, 2, 7, 1000}) {
    const std::vector<std::int64_t> values = permutation({4, "permutation"}, n);
    const std::set<std::int64_t> members(values.begin(), values.end());
    EXPECT_EQ(values.size(), static_cast<std::size_t>(n));
    EXPECT_EQ(members.size(), values.size());
    EXPECT_EQ(values.empty() ? n - 1 : *members.rbegin(), n - 1);
  }
}

TEST(Random, EveryPermutationOfFourIsAsFrequentAsTheOthers) {
  constexpr int kDraws = 24000;
  std::vector<int> counts(256);
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    const std::vector<std::int64_t> p = permutation({seed, "permutation"}, 4);
    ++counts[static_cast<std::size_t>(p[0] * 64 + p[1] * 16 + p[2] * 4 + p[3])];
  }
  double chi_square = 0;
  int seen = 0;
  for (const int count : counts) {
    if (count == 0) continue;
    ++seen;
    chi_square += std::pow(count - 1000, 2) / 1000;
  }
  EXPECT_EQ(seen, 24);
  EXPECT_NEAR(chi_square, 23, 4 * std::sqrt(2.0 * 23));
}

TEST(Random, ShufflesOfBothIntegerTypesAgree) {
  std::vector<std::int32_t> narrow(100);
  for (int i = 0; i < 100; ++i) narrow[static_cast<std::size_t>(i)] = i;
  shuffle(kStream, narrow);
  const std::vector<std::int64_t> wide = permutation(kStream, 100);
  EXPECT_TRUE(std::equal(wide.begin(), wide.end(), narrow.begin()));
}

TEST(Random, ImpossibleCountsAreRefused) {
  EXPECT_THROW(integer_below(kStream, 0, 0), Error);
  EXPECT_THROW(permutation(kStream, -1), Error);
}

}  // namespace
}  // namespace dodona
