// Rules of merge_state_v2 alone; merge_state_test.cpp holds those that it shares with merge_state.
#include "ops/attention/merge_state_v2.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dodona/error.h"
#include "ops/attention/merge_state.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using helpers::in_mode;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr Mode every_mode[] = {Mode::golden, Mode::fast, Mode::hopper};

/// A smooth, irregular function of the index.
double wave(std::int64_t i, double phase) {
  return std::sin(0.7 * static_cast<double>(i) + phase);
}

struct Part {
  Tensor v, s;
};
Part part(DType type, std::int64_t heads, std::int64_t width, double phase) {
  Part result{Tensor(type, {1, heads, width}), Tensor(DType::f32, {1, heads})};
  for (std::int64_t i = 0; i < result.v.elements(); ++i) quant::set(result.v, i, wave(i, phase));
  for (std::int64_t i = 0; i < heads; ++i) quant::set(result.s, i, 3.0 * wave(i, 2.0 * phase));
  return result;
}

ops::MergeStateV2 merge_call(const Part& a, const Part& b) {
  return {.v_a = a.v, .s_a = a.s, .v_b = b.v, .s_b = b.s, .v_merged = {}, .s_merged = {}};
}

Part merged(const Part& a, const Part& b, Mode mode) {
  const auto op = ops::run(merge_call(a, b), in_mode(mode));
  return {op.v_merged, op.s_merged};
}

TEST(MergeStateV2, PlusInfinityMeansNoKeys) {
  for (const Mode mode : every_mode) {
    const Part a = part(DType::bf16, 2, 64, 0.3), b = part(DType::bf16, 2, 64, 1.1);
    quant::set(a.s, 0, infinity);
    quant::set(b.s, 1, infinity);
    const Part result = merged(a, b, mode);
    for (std::int64_t d = 0; d < 64; ++d) {
      EXPECT_EQ(quant::get(result.v, d), quant::get(b.v, d)) << name(mode);
      EXPECT_EQ(quant::get(result.v, 64 + d), quant::get(a.v, 64 + d)) << name(mode);
    }
    EXPECT_EQ(quant::get(result.s, 0), quant::get(b.s, 0)) << name(mode);
    EXPECT_EQ(quant::get(result.s, 1), quant::get(a.s, 1)) << name(mode);
  }
}

TEST(MergeStateV2, TwoSidesOfPlusInfinityAreBothEmpty) {
  const Part a = part(DType::bf16, 1, 64, 0.3), b = part(DType::bf16, 1, 64, 1.1);
  quant::set(a.s, 0, infinity);
  quant::set(b.s, 0, -infinity);
  for (const Mode mode : every_mode) EXPECT_TRUE(std::isnan(quant::get(merged(a, b, mode).s, 0))) << name(mode);
  auto zero = merge_call(a, b);
  zero.both_empty = "zero";
  for (const Mode mode : {Mode::golden, Mode::fast})
    EXPECT_EQ(quant::get(ops::run(zero, in_mode(mode)).s_merged, 0), -infinity) << name(mode);
}

TEST(MergeStateV2, ThreeChunksGiveTheSameInEveryOrder) {
  const Part a = part(DType::f32, 5, 48, 0.3), b = part(DType::f32, 5, 48, 1.1), c = part(DType::f32, 5, 48, 2.9);
  for (const Mode mode : every_mode) {
    const Part left = merged(merged(a, b, mode), c, mode), right = merged(a, merged(b, c, mode), mode),
               mixed = merged(merged(c, a, mode), b, mode);
    for (std::int64_t i = 0; i < left.v.elements(); ++i) {
      EXPECT_NEAR(quant::get(left.v, i), quant::get(right.v, i), 2e-6) << name(mode);
      EXPECT_NEAR(quant::get(left.v, i), quant::get(mixed.v, i), 2e-6) << name(mode);
    }
    for (std::int64_t i = 0; i < 5; ++i) EXPECT_NEAR(quant::get(left.s, i), quant::get(right.s, i), 2e-6) << name(mode);
  }
}

TEST(MergeStateV2, TakesBaseTwoLogSumExpsAfterAFactorLn2) {
  const Part a = part(DType::bf16, 3, 64, 0.3), b = part(DType::bf16, 3, 64, 1.1);
  const auto base_2 =
      ops::run(ops::MergeState{.v_a = a.v, .s_a = a.s, .v_b = b.v, .s_b = b.s, .v_merged = {}, .s_merged = {}}, in_mode(Mode::golden));
  const double ln_2 = std::log(2.0);
  for (const Part& p : {a, b})
    for (std::int64_t i = 0; i < 3; ++i) quant::set(p.s, i, quant::get(p.s, i) * ln_2);
  const Part base_e = merged(a, b, Mode::golden);
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_NEAR(quant::get(base_e.s, i), quant::get(base_2.s_merged, i) * ln_2, 1e-6);
  for (std::int64_t i = 0; i < base_e.v.elements(); ++i)
    EXPECT_NEAR(quant::get(base_e.v, i), quant::get(base_2.v_merged, i), quant::ulp(DType::bf16, 1.0));
}

TEST(MergeStateV2, Fp32OutputsAreHeldToAFewUnits) {
  const Part a = part(DType::f32, 4, 32, 0.3), b = part(DType::f32, 4, 32, 1.1);
  const auto op = merge_call(a, b);
  Arguments inputs;
  for (const auto& [key, tensor] : {std::pair{"v_a", a.v}, {"s_a", a.s}, {"v_b", b.v}, {"s_b", b.s}}) inputs.set(key, tensor);
  const auto verdict = [&](double factor) {
    const auto actual = ops::run(op, in_mode(Mode::golden));
    for (std::int64_t i = 0; i < actual.v_merged.elements(); ++i) quant::set(actual.v_merged, i, quant::get(actual.v_merged, i) * factor);
    return oracle::judge(registry().at("merge_state_v2"), inputs, {{"v_merged", actual.v_merged}, {"s_merged", actual.s_merged}}, {})
        .outcome;
  };
  EXPECT_EQ(verdict(1.0), oracle::Outcome::pass);
  EXPECT_EQ(verdict(1.0 + 0x1p-22), oracle::Outcome::pass);
  EXPECT_EQ(verdict(1.0 + 0x1p-16), oracle::Outcome::fail);
}

TEST(MergeStateV2, TakesAllHeadsOfTheModel) {
  const Part a = part(DType::bf16, 128, 128, 0.3), b = part(DType::bf16, 128, 128, 1.1);
  for (const Mode mode : every_mode) EXPECT_NO_THROW(merged(a, b, mode)) << name(mode);
}

TEST(MergeStateV2, HopperModeTakesRowsOfWhole16Bytes) {
  EXPECT_NO_THROW(merged(part(DType::f32, 1, 4, 0.3), part(DType::f32, 1, 4, 1.1), Mode::hopper));
  EXPECT_THROW(merged(part(DType::bf16, 1, 4, 0.3), part(DType::bf16, 1, 4, 1.1), Mode::hopper), Error);
}

}  // namespace
}  // namespace dodona
