// Rules of merge_state, and those that it shares with merge_state_v2.
#include "ops/attention/merge_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "dodona/error.h"
#include "ops/attention/merge_state_v2.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using helpers::filled, helpers::in_mode;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// One token, one head, 64 values a side, all alike unless changed.
template <class Merge>
Merge one_head(float s_a, float s_b, double v_a = 1.0, double v_b = 3.0) {
  return {.v_a = filled(DType::bf16, {1, 1, 64}, v_a),
          .s_a = filled(DType::f32, {1, 1}, s_a),
          .v_b = filled(DType::bf16, {1, 1, 64}, v_b),
          .s_b = filled(DType::f32, {1, 1}, s_b),
          .v_merged = {},
          .s_merged = {}};
}

template <class Merge>
Arguments inputs_of(const Merge& op) {
  Arguments inputs;
  inputs.set("v_a", op.v_a);
  inputs.set("s_a", op.s_a);
  inputs.set("v_b", op.v_b);
  inputs.set("s_b", op.s_b);
  inputs.set_attr("both_empty", op.both_empty);
  return inputs;
}

/// How the outputs of `actual` are judged for the inputs of `op`.
template <class Merge, class Actual>
oracle::Outcome verdict(const Merge& op, const Actual& actual) {
  return oracle::judge(registry().at(Merge::info.name), inputs_of(op), {{"v_merged", actual.v_merged}, {"s_merged", actual.s_merged}}, {})
      .outcome;
}

double v_at(const auto& op, std::int64_t i = 0) {
  return quant::get(op.v_merged, i);
}
double s_at(const auto& op, std::int64_t i = 0) {
  return quant::get(op.s_merged, i);
}

template <class Merge>
class PartialMergeRules : public testing::Test {
 public:
  /// log 2 in the op's base.
  static constexpr double log_two = std::is_same_v<Merge, ops::MergeState> ? 1.0 : 0.69314718055994531;
};
using BothOps = testing::Types<ops::MergeState, ops::MergeStateV2>;
TYPED_TEST_SUITE(PartialMergeRules, BothOps);

constexpr Mode every_mode[] = {Mode::golden, Mode::fast, Mode::hopper};

TYPED_TEST(PartialMergeRules, EqualSidesGiveThePlainAverage) {
  for (const Mode mode : every_mode) {
    const auto op = ops::run(one_head<TypeParam>(5.0f, 5.0f), in_mode(mode));
    EXPECT_EQ(v_at(op, 63), 2.0) << name(mode);
    EXPECT_NEAR(s_at(op), 5.0 + TestFixture::log_two, 1e-6) << name(mode);
  }
}

TYPED_TEST(PartialMergeRules, WeightsAreInTheBaseOfTheOp) {
  // One log(2) apart: weights 1/3 and 2/3.
  const auto step = static_cast<float>(TestFixture::log_two);
  for (const Mode mode : every_mode) {
    const auto op = ops::run(one_head<TypeParam>(0.0f, step, 3.0, 6.0), in_mode(mode));
    EXPECT_EQ(v_at(op), 5.0) << name(mode);
    EXPECT_NEAR(s_at(op), TestFixture::log_two * std::log2(3.0), 1e-6) << name(mode);
  }
}

TYPED_TEST(PartialMergeRules, AnEmptySideLeavesTheOtherUnchanged) {
  for (const Mode mode : every_mode) {
    const auto second = ops::run(one_head<TypeParam>(-infinity, -7.25f, 1.0, 0.337890625), in_mode(mode));
    EXPECT_EQ(v_at(second), 0.337890625) << name(mode);
    EXPECT_EQ(s_at(second), -7.25) << name(mode);
    const auto first = ops::run(one_head<TypeParam>(3.5f, -infinity, 0.337890625, 1.0), in_mode(mode));
    EXPECT_EQ(v_at(first), 0.337890625) << name(mode);
    EXPECT_EQ(s_at(first), 3.5) << name(mode);
  }
}

TYPED_TEST(PartialMergeRules, NothingIsOpenBesideAnEmptySide) {
  const auto op = ops::run(one_head<TypeParam>(3.5f, -infinity, 0.337890625), in_mode(Mode::golden));
  auto wrong = op;
  wrong.s_merged = filled(DType::f32, {1, 1}, std::nextafter(3.5f, 4.0f));
  EXPECT_EQ(verdict(op, op), oracle::Outcome::pass);
  EXPECT_EQ(verdict(op, wrong), oracle::Outcome::fail);
}

TYPED_TEST(PartialMergeRules, TwoEmptySidesGiveNaN) {
  for (const Mode mode : every_mode) {
    const auto op = ops::run(one_head<TypeParam>(-infinity, -infinity), in_mode(mode));
    EXPECT_TRUE(std::isnan(v_at(op))) << name(mode);
    EXPECT_TRUE(std::isnan(s_at(op))) << name(mode);
  }
}

TYPED_TEST(PartialMergeRules, TwoEmptySidesGiveZeroAndMinusInfinityInTheFlashinferDialect) {
  auto op = one_head<TypeParam>(-infinity, -infinity, nan, infinity);
  op.both_empty = "zero";
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const auto merged = ops::run(op, in_mode(mode));
    for (std::int64_t d = 0; d < 64; ++d) EXPECT_EQ(v_at(merged, d), 0.0) << name(mode);
    EXPECT_EQ(s_at(merged), -infinity) << name(mode);
  }
  EXPECT_THROW(ops::run(op, in_mode(Mode::hopper)), Error);
}

TYPED_TEST(PartialMergeRules, OnlyEmptyHeadsAreZeroInTheFlashinferDialect) {
  TypeParam op{.v_a = filled(DType::f16, {1, 3, 19}, 2.0),
               .s_a = filled(DType::f32, {1, 3}, 0.0),
               .v_b = filled(DType::f16, {1, 3, 19}, 4.0),
               .s_b = filled(DType::f32, {1, 3}, 0.0),
               .v_merged = {},
               .s_merged = {},
               .both_empty = "zero"};
  quant::set(op.s_a, 1, -infinity);
  quant::set(op.s_b, 1, -infinity);
  op = ops::run(op, in_mode(Mode::fast));
  EXPECT_EQ(v_at(op, 18), 3.0);
  EXPECT_EQ(v_at(op, 19), 0.0);
  EXPECT_EQ(v_at(op, 37), 0.0);
  EXPECT_EQ(v_at(op, 38), 3.0);
}

TYPED_TEST(PartialMergeRules, ANaNOfEitherSideGivesNaN) {
  for (const Mode mode : every_mode) {
    for (const auto& [s_a, s_b] : {std::pair{nan, 1.0f}, {1.0f, nan}, {nan, -infinity}, {nan, nan}}) {
      const auto op = ops::run(one_head<TypeParam>(s_a, s_b), in_mode(mode));
      EXPECT_TRUE(std::isnan(v_at(op))) << name(mode);
      EXPECT_TRUE(std::isnan(s_at(op))) << name(mode);
    }
  }
}

TYPED_TEST(PartialMergeRules, ASideTooLightForFp32LeavesTheOtherUnchanged) {
  for (const Mode mode : every_mode) {
    const auto op = ops::run(one_head<TypeParam>(200.0f, -20.0f, 0.337890625, 1e30), in_mode(mode));
    EXPECT_EQ(v_at(op), 0.337890625) << name(mode);
    EXPECT_EQ(s_at(op), 200.0) << name(mode);
  }
}

TYPED_TEST(PartialMergeRules, AnInfinityWhoseWeightMayBeFlushedIsOpen) {
  // A weight of 2^-130: denormal, so infinity where denormals live and NaN where they are flushed.
  const auto distance = static_cast<float>(130.0 * TestFixture::log_two);
  const auto op = one_head<TypeParam>(distance, 0.0f, 1.0, infinity);
  // The only value is open: there is nothing to compare.
  EXPECT_EQ(verdict(op, ops::run(op, in_mode(Mode::hopper))), oracle::Outcome::vacuous);
  EXPECT_TRUE(std::isnan(v_at(ops::run(op, in_mode(Mode::hopper)))));
  EXPECT_EQ(v_at(ops::run(op, in_mode(Mode::golden))), infinity);
  // With the same infinity well above, nothing is.
  const auto clear = one_head<TypeParam>(1.0f, 0.0f, 1.0, infinity);
  auto wrong = ops::run(clear, in_mode(Mode::golden));
  quant::set(wrong.v_merged, 0, nan);
  EXPECT_EQ(verdict(clear, wrong), oracle::Outcome::fail);
}

TYPED_TEST(PartialMergeRules, SwappingTheSidesChangesNothing) {
  for (const float s : {0.25f, 7.0f, 90.0f}) {
    const auto op = ops::run(one_head<TypeParam>(s, 1.5f, 0.7, -0.3), in_mode(Mode::golden));
    const auto swapped = ops::run(one_head<TypeParam>(1.5f, s, -0.3, 0.7), in_mode(Mode::golden));
    EXPECT_EQ(v_at(op), v_at(swapped));
    EXPECT_EQ(s_at(op), s_at(swapped));
  }
}

TYPED_TEST(PartialMergeRules, TheOtherBaseFails) {
  const auto op = one_head<TypeParam>(1.0f, 2.0f, 0.7, -0.3);
  using Other = std::conditional_t<std::is_same_v<TypeParam, ops::MergeState>, ops::MergeStateV2, ops::MergeState>;
  EXPECT_EQ(verdict(op, ops::run(op, in_mode(Mode::fast))), oracle::Outcome::pass);
  EXPECT_EQ(verdict(op, ops::run(one_head<Other>(1.0f, 2.0f, 0.7, -0.3), in_mode(Mode::golden))), oracle::Outcome::fail);
}

TYPED_TEST(PartialMergeRules, AnAverageWithoutWeightsFails) {
  const auto op = one_head<TypeParam>(1.0f, 1.25f, 0.7, -0.3);
  auto wrong = ops::run(op, in_mode(Mode::golden));
  wrong.v_merged = ops::run(one_head<TypeParam>(1.0f, 1.0f, 0.7, -0.3), in_mode(Mode::golden)).v_merged;
  EXPECT_EQ(verdict(op, wrong), oracle::Outcome::fail);
}

TYPED_TEST(PartialMergeRules, AnUnnormalisedSumFails) {
  const auto op = one_head<TypeParam>(0.0f, -3.0f, 1.0, 1.0);
  auto wrong = ops::run(op, in_mode(Mode::golden));
  wrong.v_merged = filled(DType::bf16, {1, 1, 64}, 1.125);
  EXPECT_EQ(verdict(op, wrong), oracle::Outcome::fail);
}

TYPED_TEST(PartialMergeRules, ANeighbourOfAClearResultFails) {
  const auto op = one_head<TypeParam>(0.0f, 0.0f, 1.0, 3.0);
  auto wrong = ops::run(op, in_mode(Mode::golden));
  quant::set(wrong.v_merged, 17, quant::next_up(DType::bf16, 2.0));
  EXPECT_EQ(verdict(op, wrong), oracle::Outcome::fail);
}

TYPED_TEST(PartialMergeRules, OnlyTheTwoNeighboursOfATieAreWithinTheBudget) {
  const auto op = one_head<TypeParam>(0.0f, 0.0f, 1.0, 1.0 + 0x1p-6 + 0x1p-7);
  auto wrong = ops::run(op, in_mode(Mode::golden));
  EXPECT_EQ(v_at(wrong), 1.015625);
  wrong.v_merged = filled(DType::bf16, {1, 1, 64}, 1.0078125);
  // 1.01171875 is halfway: either neighbour is within the budget, the number below is not.
  EXPECT_EQ(verdict(op, wrong), oracle::Outcome::pass);
  wrong.v_merged = filled(DType::bf16, {1, 1, 64}, 1.0);
  EXPECT_EQ(verdict(op, wrong), oracle::Outcome::fail);
}

TYPED_TEST(PartialMergeRules, DenormalValuesMayBeFlushed) {
  const auto op = one_head<TypeParam>(0.0f, -infinity, 0x1p-128, 1.0);
  EXPECT_EQ(v_at(ops::run(op, in_mode(Mode::golden))), 0x1p-128);
  const auto flushed = ops::run(op, in_mode(Mode::hopper));
  EXPECT_EQ(v_at(flushed), 0.0);
  EXPECT_NE(verdict(op, flushed), oracle::Outcome::fail);
}

TYPED_TEST(PartialMergeRules, NoTokensNothingHappens) {
  TypeParam op{.v_a = Tensor(DType::bf16, {0, 4, 64}),
               .s_a = Tensor(DType::f32, {0, 4}),
               .v_b = Tensor(DType::bf16, {0, 4, 64}),
               .s_b = Tensor(DType::f32, {0, 4}),
               .v_merged = {},
               .s_merged = {}};
  for (const Mode mode : every_mode) EXPECT_EQ(ops::run(op, in_mode(mode)).v_merged.shape(), (Dims{0, 4, 64}));
}

TYPED_TEST(PartialMergeRules, ValuesMayBeSlicesOfAWiderTensor) {
  const Tensor wide = filled(DType::bf16, {2, 20, 96}, 5.0);
  for (std::int64_t i = 0; i < wide.elements(); ++i) quant::set(wide, i, static_cast<double>(i % 37) / 8.0);
  const Tensor slice = wide.slice(2, 16, 80), dense = slice.clone();
  TypeParam op{.v_a = slice,
               .s_a = filled(DType::f32, {2, 20}, 0.5),
               .v_b = filled(DType::bf16, {2, 20, 64}, 1.0),
               .s_b = filled(DType::f32, {2, 20}, 0.25),
               .v_merged = {},
               .s_merged = {}};
  for (const Mode mode : every_mode) {
    op.v_a = slice;
    const auto strided = ops::run(op, in_mode(mode));
    op.v_a = dense;
    const auto contiguous = ops::run(op, in_mode(mode));
    for (std::int64_t i = 0; i < dense.elements(); ++i) ASSERT_EQ(v_at(strided, i), v_at(contiguous, i)) << name(mode);
  }
}

TEST(MergeState, PlusInfinityGivesNaN) {
  for (const Mode mode : every_mode) {
    const auto op = ops::run(one_head<ops::MergeState>(infinity, 1.0f), in_mode(mode));
    EXPECT_TRUE(std::isnan(v_at(op))) << name(mode);
    EXPECT_TRUE(std::isnan(s_at(op))) << name(mode);
  }
}

TEST(MergeState, HopperModeRefusesWhatTheKernelCannotLaunch) {
  const auto call = [](std::int64_t heads, std::int64_t width) {
    return ops::MergeState{.v_a = Tensor(DType::bf16, {1, heads, width}),
                           .s_a = Tensor(DType::f32, {1, heads}),
                           .v_b = Tensor(DType::bf16, {1, heads, width}),
                           .s_b = Tensor(DType::f32, {1, heads}),
                           .v_merged = {},
                           .s_merged = {}};
  };
  EXPECT_NO_THROW(ops::run(call(64, 128), in_mode(Mode::hopper)));
  EXPECT_THROW(ops::run(call(65, 128), in_mode(Mode::hopper)), Error);
  EXPECT_THROW(ops::run(call(128, 128), in_mode(Mode::hopper)), Error);
  EXPECT_THROW(ops::run(call(1, 96), in_mode(Mode::hopper)), Error);
  EXPECT_NO_THROW(ops::run(call(128, 128), in_mode(Mode::fast)));
}

TEST(MergeState, AWeightedSumBeyondFloatsMayBeInfiniteAndOneWithinMayNot) {
  for (const auto& [v, outcome] : {std::pair{3.3e38, oracle::Outcome::known_defect}, {1.6e38, oracle::Outcome::fail}}) {
    const auto op = one_head<ops::MergeState>(0.0f, 0.0f, v, v);
    auto merged = ops::run(op, in_mode(Mode::golden));
    quant::set(merged.v_merged, 5, infinity);
    EXPECT_EQ(verdict(op, merged), outcome) << v;
    quant::set(merged.v_merged, 5, -infinity);
    EXPECT_EQ(verdict(op, merged), oracle::Outcome::fail) << v;
  }
}

TEST(MergeState, HasNoFp32) {
  auto op = one_head<ops::MergeState>(0.0f, 0.0f);
  op.v_a = op.v_b = Tensor(DType::f32, {1, 1, 64});
  EXPECT_THROW(ops::run(op, in_mode(Mode::fast)), Error);
}

}  // namespace
}  // namespace dodona
