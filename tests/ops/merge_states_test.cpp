// Rules of merge_states.
#include "ops/attention/merge_states.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "helpers.h"
#include "ops/attention/merge_state.h"
#include "quant/element.h"

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

}  // namespace
}  // namespace dodona
