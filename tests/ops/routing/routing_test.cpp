// What routers share: intervals of scores, weights over their sum, choices, and which other choices are legitimate.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/routing/order.h"
#include "ops/routing/scores.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;
using Ids = std::vector<std::int64_t>;

/// sigmoid(x) as kernels in plain fp32 compute it, the exponential a unit in the last place off either way.
std::vector<double> honest_sigmoids(DType type, float x) {
  std::vector<double> found;
  const float exact = std::exp(-x);
  for (const float e : {std::nextafter(exact, 0.0f), exact, std::nextafter(exact, INFINITY)})
    for (const float divided : {1.0f / (1.0f + e), std::nextafter(1.0f / (1.0f + e), 0.0f)})
      found.push_back(quant::round_to(type, divided));
  return found;
}

TEST(RouterScores, IntervalsHoldWhatHonestKernelsCompute) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16})
    for (int i = -2000; i <= 2000; ++i) {
      const float x = static_cast<float>(i) * 0.037f;
      const ops::Interval interval = ops::sigmoid_interval(type, x);
      for (const double s : honest_sigmoids(type, x)) {
        if (x > 17.329f) continue;  // exactly 1, but for the division that is a unit off here
        ASSERT_LE(interval.low, s) << name(type) << " " << x;
        ASSERT_GE(interval.high, s) << name(type) << " " << x;
      }
      ASSERT_LE(interval.high - interval.low, (2.5 * std::fabs(x) + 16) * 0x1p-24 * interval.high + quant::ulp(type, interval.high)) << x;
    }
  EXPECT_EQ(ops::sigmoid_interval(DType::f32, 20).low, 1.0);
}

TEST(RouterScores, SumsOfIntervalsAreRoundedToTheTypeAtBothEnds) {
  const ops::Interval sum = ops::sum_interval(DType::bf16, {0.5, 0.5}, {256, 256});
  EXPECT_EQ(sum.low, 256.0);
  EXPECT_EQ(sum.high, 256.0);
  const ops::Interval wide = ops::sum_interval(DType::f32, {0.25, 0.5}, {1, 1});
  EXPECT_EQ(wide.low, 1.25);
  EXPECT_EQ(wide.high, 1.5);
}

/// The share of its slack that a weight needs.
double share(const ops::Bounded& weight, double value) {
  return std::fabs(value - weight.exact) / weight.slack;
}

TEST(RouterScores, WeightsOverTheirSumAreBoundedInAnyOrderAndMistakesAreNot) {
  const std::vector<float> x{0.3f, -1.2f, 2.5f, 0.7f, -3.0f, 1.1f, 0.0f, -0.4f};
  ops::ChosenScores scores;
  std::vector<float> s;
  for (const float value : x) {
    s.push_back(1.0f / (1.0f + std::exp(-value)));
    scores.add(static_cast<float>(1 / (1 + std::exp(-static_cast<double>(value)))), ops::sigmoid_interval(DType::f32, value));
  }
  float backwards = 0, without_first = 0;
  for (std::size_t k = s.size(); k-- > 0;) backwards += s[k], without_first += k > 0 ? s[k] : 0;
  for (std::size_t k = 0; k < s.size(); ++k) {
    const ops::Bounded weight = scores.weight(k);
    EXPECT_FALSE(weight.open);
    EXPECT_LE(share(weight, s[k] / backwards), 1.0);
    EXPECT_LE(share(weight, s[k] * (1 / backwards)), 1.0) << "by the reciprocal";
    EXPECT_GT(share(weight, s[k] / without_first), 100.0);
    EXPECT_GT(share(weight, quant::round_to(DType::bf16, s[k] / backwards)), 10.0);
    EXPECT_LE(share(scores.weight(k, false), s[k]), 1.0);
  }
}

TEST(RouterScores, WeightsOfScoresThatMayBeFlushedAreOpen) {
  ops::ChosenScores scores;
  scores.add(1e-38, ops::sigmoid_interval(DType::f32, -87.5));
  EXPECT_TRUE(scores.weight(0).open);
}

Ids chosen(std::int64_t groups, std::int64_t kept, std::int64_t experts, const std::vector<float>& keys,
           ops::ChoiceRule rule = ops::ChoiceRule::right) {
  return ops::choose({DType::f32, groups, kept, experts}, keys, ops::ExactArithmetic::add, rule);
}

TEST(RouterChoice, OneGroupThatIsKeptIsAChoiceOverAll) {
  EXPECT_EQ(chosen(1, 1, 3, {1, 5, 3, 5, 2}), (Ids{1, 3, 2}));
  EXPECT_EQ(chosen(1, 1, 5, {1, 1, 1, 1, 1}), (Ids{0, 1, 2, 3, 4}));
}

TEST(RouterChoice, GroupsGoByTheirTwoBestAndMistakesByOthers) {
  const std::vector<float> keys{6, 0, 5, 4, 3, 3};  // sums 6, 9, 6
  EXPECT_EQ(chosen(3, 1, 1, keys), (Ids{2}));
  EXPECT_EQ(chosen(3, 2, 2, keys), (Ids{0, 2}));
  EXPECT_EQ(chosen(3, 1, 1, keys, ops::ChoiceRule::group_by_maximum), (Ids{0}));
  EXPECT_EQ(chosen(3, 2, 3, keys, ops::ChoiceRule::ties_to_higher_index), (Ids{2, 3, 5}));
}

TEST(RouterChoice, OnlyAnotherChoiceThanTheRecordedOneIsReported) {
  Reference reference;
  ReferenceOutput& expected = reference.output("ids", 4);
  expected.exact = {7, 1, 4, 2};
  const Tensor ids = tensor_of(DType::i32, {2, 2}, {7, 1, 2, 4});
  EXPECT_FALSE(ops::other_choice(ids, expected, 0, 2).has_value());
  EXPECT_EQ(ops::other_choice(ids, expected, 2, 2).value(), (Ids{2, 4}));
}

TEST(RouterChoice, WithoutGroupsANearTieMayFallEitherWayAndAClearOrderMayNot) {
  const auto key = [](double low, double high, std::uint64_t origin) { return ops::GateKey{low, high, {origin, 0}}; };
  const std::vector experts{key(3, 3, 0), key(1.9, 2.1, 1), key(2, 2.2, 2), key(1, 1, 3)};
  const std::vector<ops::GateKey> groups = ops::group_keys(DType::f32, 1, experts);
  EXPECT_TRUE(ops::is_legitimate_choice(experts, groups, 1, Ids{0, 1}));
  EXPECT_TRUE(ops::is_legitimate_choice(experts, groups, 1, Ids{0, 2}));
  EXPECT_FALSE(ops::is_legitimate_choice(experts, groups, 1, Ids{1, 0}));
  EXPECT_FALSE(ops::is_legitimate_choice(experts, groups, 1, Ids{0, 3}));
  EXPECT_FALSE(ops::is_legitimate_choice(experts, groups, 1, Ids{0, 0}));
}

// ---- orders of keys known to an interval

ops::GateKey key(double low, double high, std::uint64_t origin) {
  return {low, high, {origin, 0}};
}

TEST(GateOrder, OverlappingKeysStandInNoOrder) {
  const std::vector keys{key(1, 3, 0), key(2, 4, 1)};
  EXPECT_FALSE(ops::stands_before(keys, 0, 1));
  EXPECT_FALSE(ops::stands_before(keys, 1, 0));
}

TEST(GateOrder, KeysThatTouchMayTieForTheLowerIndexOnly) {
  const std::vector keys{key(2, 3, 0), key(1, 2, 1), key(3, 4, 2)};
  EXPECT_TRUE(ops::stands_before(keys, 0, 1));
  EXPECT_FALSE(ops::stands_before(keys, 2, 0));
  EXPECT_FALSE(ops::stands_before(keys, 0, 2));
}

TEST(GateOrder, KeysOfOneOriginStandByIndex) {
  const std::vector keys{key(1, 2, 7), key(1, 2, 7)};
  EXPECT_TRUE(ops::stands_before(keys, 0, 1));
  EXPECT_FALSE(ops::stands_before(keys, 1, 0));
}

TEST(GateOrder, AGroupThatHidesABetterExpertMustBeDropped) {
  // Groups {0,1}, {2,3}, {4,5}; the second and third nearly tie. Choosing 0 and 1 with two groups kept leaves one of them kept.
  std::vector experts{key(8, 8, 0), key(3, 3, 1), key(5, 5, 2), key(1, 1, 3), key(2, 2, 4), key(2, 2, 5)};
  std::vector groups{key(11, 11, 10), key(5.9, 6.1, 11), key(5.8, 6, 12)};
  // Expert 2 is better than 1, so the second group must be dropped: possible while the third may stand before it.
  EXPECT_TRUE(ops::is_legitimate_choice(experts, groups, 2, std::vector<std::int64_t>{0, 1}));
  EXPECT_TRUE(ops::is_legitimate_choice(experts, groups, 2, std::vector<std::int64_t>{0, 2}));
  groups[2] = key(4, 4, 12);
  EXPECT_FALSE(ops::is_legitimate_choice(experts, groups, 2, std::vector<std::int64_t>{0, 1}));
  EXPECT_TRUE(ops::is_legitimate_choice(experts, groups, 1, std::vector<std::int64_t>{0, 1}));
}

TEST(GateOrder, ABetterExpertOfTheSameGroupMayNotBePassedOver) {
  const std::vector experts{key(3, 3, 0), key(5, 5, 1), key(1, 1, 2), key(1, 1, 2)};
  const std::vector groups{key(7.9, 8, 10), key(7.9, 8, 11)};
  EXPECT_FALSE(ops::is_legitimate_choice(experts, groups, 1, std::vector<std::int64_t>{0}));
  EXPECT_TRUE(ops::is_legitimate_choice(experts, groups, 1, std::vector<std::int64_t>{1}));
}

TEST(GateOrder, MoreGroupsThanAreKeptAreTooMany) {
  const std::vector experts{key(4, 4, 0), key(3, 3, 1), key(2, 2, 2), key(1, 1, 3)};
  const std::vector groups{key(7, 7, 10), key(3, 3, 11)};
  EXPECT_TRUE(ops::is_legitimate_choice(experts, groups, 2, std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_FALSE(ops::is_legitimate_choice(experts, groups, 1, std::vector<std::int64_t>{0, 1, 2}));
}

}  // namespace
}  // namespace dodona
