// Rules of merge_states.
#include "ops/attention/merge_states.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/attention/merge_state.h"
#include "quant/element.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using helpers::in_mode, helpers::tensor_of;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr Mode both_modes[] = {Mode::golden, Mode::fast};

/// One token, one head, states of one value each.
ops::MergeStates merged(const std::vector<double>& v, const std::vector<double>& s, Mode mode) {
  const auto states = static_cast<std::int64_t>(v.size());
  return ops::run(
      ops::MergeStates{
          .v = tensor_of(DType::f16, {1, states, 1, 1}, v), .s = tensor_of(DType::f32, {1, states, 1}, s), .v_merged = {}, .s_merged = {}},
      in_mode(mode));
}

double v_of(const ops::MergeStates& op) {
  return quant::get(op.v_merged, 0);
}
double s_of(const ops::MergeStates& op) {
  return quant::get(op.s_merged, 0);
}

TEST(MergeStates, EqualStatesGiveTheirAverageAndOneLogarithmMore) {
  for (const Mode mode : both_modes) {
    const auto op = merged({1, 2, 3, 6}, {5, 5, 5, 5}, mode);
    EXPECT_EQ(v_of(op), 3.0) << name(mode);
    EXPECT_EQ(s_of(op), 7.0) << name(mode);
  }
}

TEST(MergeStates, WeightsAreInBaseTwo) {
  for (const Mode mode : both_modes) EXPECT_EQ(v_of(merged({3, 6}, {1, 2}, mode)), 5.0) << name(mode);
}

TEST(MergeStates, AnEmptyStateAddsNothingWhereverItStandsAndWhateverItHolds) {
  for (const Mode mode : both_modes) {
    for (const std::vector<double>& s : {std::vector<double>{-infinity, 4, 4}, {4, -infinity, 4}, {4, 4, -infinity}}) {
      std::vector<double> v;
      for (const double each : s) v.push_back(each == -infinity ? 1000.0 : v.empty() || v.back() == 1000.0 ? 1.0 : 3.0);
      if (v[0] == 1.0 && v[1] == 1000.0) v[2] = 3.0;
      const auto op = merged(v, s, mode);
      EXPECT_EQ(v_of(op), 2.0) << name(mode);
      EXPECT_EQ(s_of(op), 5.0) << name(mode);
    }
  }
}

TEST(MergeStates, EmptyStatesAloneGiveZeroAndStayEmpty) {
  for (const Mode mode : both_modes) {
    const auto op = merged({7, 8}, {-infinity, -infinity}, mode);
    EXPECT_EQ(v_of(op), 0.0) << name(mode);
    EXPECT_EQ(s_of(op), -infinity) << name(mode);
  }
}

TEST(MergeStates, NoStatesAreAsEmptyOnes) {
  for (const Mode mode : both_modes) {
    const auto op = merged({}, {}, mode);
    EXPECT_EQ(v_of(op), 0.0) << name(mode);
    EXPECT_EQ(s_of(op), -infinity) << name(mode);
  }
}

TEST(MergeStates, OneStateIsCopied) {
  for (const Mode mode : both_modes) {
    const auto op = merged({-0.0999755859375}, {-infinity}, mode);
    EXPECT_EQ(v_of(op), -0.0999755859375) << name(mode);
    EXPECT_EQ(s_of(op), -infinity) << name(mode);
  }
}

TEST(MergeStates, DistancesBeyondFloatsLeaveTheLargest) {
  for (const Mode mode : both_modes) {
    const auto op = merged({1, 2, 3}, {-3e38, 1000, -1000}, mode);
    EXPECT_EQ(v_of(op), 2.0) << name(mode);
    EXPECT_EQ(s_of(op), 1000.0) << name(mode);
  }
}

TEST(MergeStates, TwoStatesAreMergeState) {
  for (const Mode mode : both_modes) {
    for (const double distance : {0.0, 0.3, -2.5, 11.0}) {
      const auto two = merged({1.5, -0.75}, {2.0, 2.0 + distance}, mode);
      const auto pair = ops::run(ops::MergeState{.v_a = tensor_of(DType::f16, {1, 1, 1}, {1.5}),
                                                 .s_a = tensor_of(DType::f32, {1, 1}, {2.0}),
                                                 .v_b = tensor_of(DType::f16, {1, 1, 1}, {-0.75}),
                                                 .s_b = tensor_of(DType::f32, {1, 1}, {2.0 + distance}),
                                                 .v_merged = {},
                                                 .s_merged = {}},
                                 in_mode(mode));
      EXPECT_NEAR(v_of(two), quant::get(pair.v_merged, 0), 1e-3) << name(mode);
      EXPECT_NEAR(s_of(two), quant::get(pair.s_merged, 0), 1e-6) << name(mode);
    }
  }
}

/// What the judge says of a token's outputs beside those of a usual token, whose states are all 1 and alike.
oracle::Outcome judged(DType type, std::vector<double> v, std::vector<double> s, double v_merged, double s_merged) {
  static const helpers::NamedOp op{"merge_states"};
  const auto states = static_cast<std::int64_t>(v.size());
  v.insert(v.end(), v.size(), 1.0), s.insert(s.end(), s.size(), 0.0);
  Arguments a;
  a.set("v", tensor_of(type, {2, states, 1, 1}, v)), a.set("s", tensor_of(DType::f32, {2, states, 1}, s));
  const oracle::NamedTensors outputs{{"v_merged", tensor_of(type, {2, 1, 1}, {v_merged, 1})},
                                     {"s_merged", tensor_of(DType::f32, {2, 1}, {s_merged, std::log2(static_cast<double>(states))})}};
  return oracle::judge(op.op(), a, outputs, {}).outcome;
}

TEST(MergeStates, BeginningsAtMinusFiftyThousandAreKnownAndNoOtherNumbers) {
  const auto known = oracle::Outcome::known_defect, fail = oracle::Outcome::fail;
  const std::vector<double> low{-6e4, -6e4};
  EXPECT_EQ(judged(DType::f16, {2, 4}, low, 0, -5e4), known);
  EXPECT_EQ(judged(DType::f16, {2, 4}, low, 0, -49996), known) << "of 16 parts";
  EXPECT_EQ(judged(DType::f16, {2, 4}, low, 0, -49990), fail);
  EXPECT_EQ(judged(DType::f16, {2, 4}, low, 3.5, -5e4), fail) << "neither their mean nor nothing";
  EXPECT_EQ(judged(DType::f16, {2, 4}, {-5e4, -5e4}, 2, -49998.415), known) << "beside the beginning two states weigh two thirds";
  EXPECT_EQ(judged(DType::f16, {2, 4}, {-5e4, -5e4}, 3.5, -49998.415), fail);
  EXPECT_EQ(judged(DType::f16, {2}, {-infinity}, 0, -5e4), known) << "the Triton kernel copies no single state";
  EXPECT_EQ(judged(DType::f16, {2}, {-infinity}, 0, 1), fail);
}

TEST(MergeStates, AboutTheBeginningsWhatIsNotFiniteGivesNoNumber) {
  EXPECT_EQ(judged(DType::f16, {infinity, 4}, {-5e4, -5e4}, 7, -49998.415), oracle::Outcome::fail);
}

TEST(MergeStates, SumsAboutAMaximumThatALaterStateExceedsMayLeaveFloatsAndThoseOfEmptyStatesMayNot) {
  const std::vector<double> v{-3.38e38, -3.38e38, 1};
  EXPECT_EQ(judged(DType::bf16, v, {0, 1, 4e6}, std::nan(""), 4e6), oracle::Outcome::pass);
  EXPECT_EQ(judged(DType::bf16, v, {-infinity, -infinity, 4e6}, std::nan(""), 4e6), oracle::Outcome::fail);
}

TEST(MergeStates, WeightsThatVanishAboutTheLargestMayStayWhereStatesBetweenAreMergedFirst) {
  const std::vector<double> v{-3e-34, 2.75e30}, s{300, 100};
  for (const double merged : {-3e-34, 1.7e-30}) EXPECT_EQ(judged(DType::bf16, v, s, merged, 300), oracle::Outcome::pass) << merged;
  EXPECT_EQ(judged(DType::bf16, v, s, 1e-7, 300), oracle::Outcome::fail);
}

TEST(MergeStates, SumsAboutALesserMaximumMayLeaveFloats) {
  const std::vector<double> large{3.3e38, 3.3e38, 1}, s{0, -4, 3};
  EXPECT_NE(judged(DType::bf16, large, s, infinity, std::log2(9.0625)), oracle::Outcome::fail);
  EXPECT_EQ(judged(DType::bf16, {3.3e37, 3.3e37, 1}, s, infinity, std::log2(9.0625)), oracle::Outcome::fail);
}

TEST(MergeStates, HopperModeIsWithinTheBudgetAndRefusesWhatDoesNotLaunch) {
  const helpers::NamedOp op{"merge_states"};
  for (const char* line : {"T=9 S=4 N=3 D=64", "T=2 S=37 N=3 D=128", "T=3 S=9 N=2 D=512 --dtype v=f16", "T=5 S=1 N=4 D=256"}) {
    const Arguments a = op.case_of(line);
    EXPECT_EQ(op.failing(a, op.outputs(a, in_mode(Mode::hopper))), 0) << line;
  }
  EXPECT_THROW(op.outputs(op.case_of("T=3 S=2 N=2 D=32"), in_mode(Mode::hopper)), Error);
  EXPECT_THROW(op.outputs(op.case_of("T=3 S=2 N=128 D=128"), in_mode(Mode::hopper)), Error);
}

}  // namespace
}  // namespace dodona
