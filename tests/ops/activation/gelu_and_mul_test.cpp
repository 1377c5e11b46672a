// Rules of gelu_and_mul; silu_and_mul_test.cpp holds those that the gated activations share.
#include "ops/activation/gelu_and_mul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/activation/gelu_tanh_and_mul.h"
#include "tests/ops/activation/gelu.h"

namespace dodona {
namespace {

using namespace helpers;

Tensor run(const Tensor& input, Mode mode) {
  return ops::run(ops::GeluAndMul{.input = input, .out = {}}, in_mode(mode)).out;
}
double gelu_at(double gate, double up, Mode mode) {
  return quant::get(run(row_of(DType::bf16, gate, up), mode), 0);
}

oracle::Verdict judged(const Tensor& input, const Tensor& out) {
  Arguments inputs;
  inputs.set("input", input);
  return oracle::judge(registry().at("gelu_and_mul"), inputs, {{"out", out}}, {});
}

TEST(GeluAndMul, ValuesAreThoseOfTheErrorFunction) {
  for (const Mode mode : all_modes)
    for (const double g : {-3.0, -1.0, -0.125, 0.5, 2.0})
      EXPECT_NEAR(gelu_at(g, 1.0, mode), g * 0.5 * std::erfc(-g / std::sqrt(2.0)), 4e-3 * std::fabs(g));
}

TEST(GeluAndMul, TanhFormIsCaught) {
  for (const DType type : {DType::f32, DType::f16}) {
    const Tensor input = ramp(type, -4.0, 4.0);
    const Tensor other = ops::run(ops::GeluTanhAndMul{.input = input, .out = {}}, in_mode(Mode::golden)).out;
    EXPECT_GT(judged(input, other).failing(), 200);
  }
}

TEST(GeluAndMul, CancellationBelowMinusThreeIsAllowedAbsolutely) {
  const Tensor input = ramp(DType::f32, -6.0, -3.0);
  EXPECT_EQ(judged(input, run(input, Mode::hopper)).failing(), 0);
  EXPECT_EQ(judged(input, run(input, Mode::fast)).failing(), 0);
  // Two units of 2^-24 |gate| are more than an honest implementation loses.
  Tensor off = run(input, Mode::golden);
  for (std::int64_t i = 0; i < 512; ++i) quant::set(off, i, quant::get(off, i) + 3 * 0x1p-24 * quant::get(input, i));
  EXPECT_EQ(judged(input, off).failing(), 512);
}

TEST(GeluAndMul, ErfOfMinusOneGivesMinusZero) {
  EXPECT_EQ(gelu_at(-5.5625, 1.0, Mode::hopper), 0.0);
  EXPECT_TRUE(std::signbit(gelu_at(-5.5625, 1.0, Mode::hopper)));
  EXPECT_NEAR(gelu_at(-5.5625, 1.0, Mode::golden), -7.4e-8, 1e-9);
  const Tensor input = row_of(DType::bf16, -20.0, 1.0);
  EXPECT_EQ(judged(input, run(input, Mode::hopper)).failing(), 0);
  Tensor off = run(input, Mode::golden);
  for (std::int64_t i = 0; i < 8; ++i) quant::set(off, i, -1e-7);
  EXPECT_EQ(judged(input, off).failing(), 8) << "far below, erf is -1 to the bit";
}

TEST(GeluAndMul, InfiniteGates) {
  for (const Mode mode : all_modes) {
    EXPECT_TRUE(std::isnan(gelu_at(-infinity, 1.0, mode)));
    EXPECT_EQ(gelu_at(infinity, 2.0, mode), infinity);
    EXPECT_TRUE(std::isnan(gelu_at(infinity, 0.0, mode)));
    EXPECT_TRUE(std::isnan(gelu_at(std::nan(""), 1.0, mode)));
  }
}

TEST(GeluAndMul, LargeNegativeGatesGiveZeroOfTheProductsSign) {
  for (const Mode mode : all_modes) {
    EXPECT_EQ(gelu_at(-3e38, 1.0, mode), 0.0);
    EXPECT_TRUE(std::signbit(gelu_at(-3e38, 1.0, mode)));
    EXPECT_FALSE(std::signbit(gelu_at(-3e38, -1.0, mode)));
    EXPECT_TRUE(std::isnan(gelu_at(-3e38, infinity, mode)));
  }
}

}  // namespace
}  // namespace dodona
