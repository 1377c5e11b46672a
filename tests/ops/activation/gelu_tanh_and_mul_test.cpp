// Rules of gelu_tanh_and_mul; silu_and_mul_test.cpp holds those that the gated activations share.
#include "ops/activation/gelu_tanh_and_mul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/activation/gelu_and_mul.h"
#include "tests/ops/activation/gelu.h"

namespace dodona {
namespace {

using namespace helpers;

Tensor run(const Tensor& input, Mode mode) {
  return ops::run(ops::GeluTanhAndMul{.input = input, .out = {}}, in_mode(mode)).out;
}
double gelu_at(double gate, double up, Mode mode) {
  return quant::get(run(row_of(DType::bf16, gate, up), mode), 0);
}

oracle::Verdict judged(const Tensor& input, const Tensor& out, const char* tanh_error = "measured") {
  Arguments inputs;
  inputs.set("input", input);
  inputs.set_attr("tanh_error", std::string(tanh_error));
  return oracle::judge(registry().at("gelu_tanh_and_mul"), inputs, {{"out", out}}, {});
}

TEST(GeluTanhAndMul, ValuesAreThoseOfTheTanhForm) {
  for (const Mode mode : all_modes)
    for (const double g : {-3.0, -1.0, -0.125, 0.5, 2.0})
      EXPECT_NEAR(gelu_at(g, 1.0, mode), 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))), 4e-3 * std::fabs(g));
}

TEST(GeluTanhAndMul, ErfFormIsCaughtUnderTheMeasuredErrorOfTanh) {
  const Tensor input = ramp(DType::f32, -4.0, 4.0);
  const Tensor other = ops::run(ops::GeluAndMul{.input = input, .out = {}}, in_mode(Mode::golden)).out;
  EXPECT_GT(judged(input, other).failing(), 300);
  EXPECT_LT(judged(input, other, "documented").failing(), 100) << "the documented error of the instruction hides it";
}

TEST(GeluTanhAndMul, ApproximateTanhOfTheDevicePasses) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16})
    for (const double first : {-8.0, -3.6, -1.0}) {
      const Tensor input = ramp(type, first, first + 4);
      EXPECT_EQ(judged(input, run(input, Mode::hopper)).failing(), 0);
    }
  // 15 units in the last place of f16 from the exact form.
  const Tensor input = row_of(DType::f16, -3.578125, 1.0);
  EXPECT_NE(quant::get_bits(run(input, Mode::hopper), 0), quant::get_bits(run(input, Mode::golden), 0));
}

TEST(GeluTanhAndMul, TanhOfMinusOneGivesMinusZero) {
  EXPECT_EQ(gelu_at(-5.0, 1.0, Mode::hopper), 0.0);
  EXPECT_TRUE(std::signbit(gelu_at(-5.0, 1.0, Mode::hopper)));
  EXPECT_LT(gelu_at(-5.0, 1.0, Mode::golden), -1e-7);
  const Tensor input = row_of(DType::bf16, -6.0, 1.0);
  Tensor off = run(input, Mode::golden);
  for (std::int64_t i = 0; i < 8; ++i) quant::set(off, i, -1e-7);
  EXPECT_EQ(judged(input, off).failing(), 8) << "far below, tanh is -1 to the bit";
}

TEST(GeluTanhAndMul, InfiniteGates) {
  for (const Mode mode : all_modes) {
    EXPECT_TRUE(std::isnan(gelu_at(-infinity, 1.0, mode)));
    EXPECT_EQ(gelu_at(infinity, 2.0, mode), infinity);
    EXPECT_TRUE(std::isnan(gelu_at(infinity, 0.0, mode)));
    EXPECT_TRUE(std::isnan(gelu_at(std::nan(""), 1.0, mode)));
  }
}

TEST(GeluTanhAndMul, CubeThatOverflowsSaturatesTheTanh) {
  for (const Mode mode : all_modes) {
    EXPECT_EQ(gelu_at(0x1p100, 1.0, mode), 0x1p100);
    EXPECT_EQ(gelu_at(-0x1p100, 1.0, mode), 0.0);
    EXPECT_TRUE(std::signbit(gelu_at(-0x1p100, 1.0, mode)));
  }
}

}  // namespace
}  // namespace dodona
