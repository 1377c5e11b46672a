// Rules of sgl_per_token_quant_fp8.
#include "ops/quantization/sgl_per_token_quant_fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dodona/error.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using helpers::in_mode;

constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
constexpr Mode every_mode[] = {Mode::golden, Mode::fast, Mode::hopper};

Tensor rows(DType type, std::int64_t m, std::int64_t k) {
  const Tensor x(type, {m, k});
  for (std::int64_t i = 0; i < x.elements(); ++i)
    quant::set(x, i, std::sin(0.7 * static_cast<double>(i)) * std::exp2(static_cast<double>(i % 9)));
  return x;
}

ops::SglPerTokenQuantFp8 quantized(const Tensor& x, Mode mode, const std::string& divide = "rcp") {
  return ops::run(ops::SglPerTokenQuantFp8{.input = x, .output_q = {}, .output_s = {}, .divide = divide}, in_mode(mode));
}
unsigned code(const ops::SglPerTokenQuantFp8& op, std::int64_t i) {
  return op.output_q.as<std::uint8_t>()[i];
}
float scale(const ops::SglPerTokenQuantFp8& op, std::int64_t m) {
  return op.output_s.as<float>()[m];
}

oracle::Verdict judged(const Tensor& x, const ops::SglPerTokenQuantFp8& actual) {
  Arguments inputs;
  inputs.set("input", x);
  return oracle::judge(registry().at("sgl_per_token_quant_fp8"), inputs, {{"output_q", actual.output_q}, {"output_s", actual.output_s}},
                       {});
}

TEST(SglPerTokenQuantFp8, LargestElementBecomes448WhereverItIs) {
  for (const Mode mode : every_mode)
    for (const std::int64_t at : {0, 1, 31, 32, 63, 64, 65, 70, 75}) {
      const Tensor x(DType::bf16, {1, 76});
      for (std::int64_t i = 0; i < 76; ++i) quant::set(x, i, 0.5);
      quant::set(x, at, -3.0);
      const auto op = quantized(x, mode);
      EXPECT_EQ(code(op, at), 0xFEu) << name(mode) << at;
      EXPECT_EQ(scale(op, 0), 3.0f * (1.0f / 448.0f)) << name(mode) << at;
    }
}

TEST(SglPerTokenQuantFp8, FastEqualsGoldenToTheBit) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    for (const char* divide : {"rcp", "ieee"})
      for (const std::int64_t k : {4, 36, 64, 100, 1076}) {
        const Tensor x = rows(type, 3, k);
        const auto golden = quantized(x, Mode::golden, divide), fast = quantized(x, Mode::fast, divide);
        for (std::int64_t i = 0; i < 3 * k; ++i) ASSERT_EQ(code(golden, i), code(fast, i)) << name(type) << ' ' << k << ' ' << i;
        for (std::int64_t m = 0; m < 3; ++m) ASSERT_EQ(scale(golden, m), scale(fast, m));
      }
}

TEST(SglPerTokenQuantFp8, DivisionsDifferInTheLastPlaceOfTheScale) {
  const Tensor x(DType::f32, {1, 4});
  int different = 0;
  for (int i = 0; i < 100; ++i) {
    quant::set(x, 0, static_cast<float>(1.0 + i / 100.0));
    const float rcp = scale(quantized(x, Mode::fast, "rcp"), 0), ieee = scale(quantized(x, Mode::fast, "ieee"), 0);
    different += rcp != ieee;
    EXPECT_NEAR(rcp / ieee, 1.0, 0x1p-22);
    EXPECT_EQ(judged(x, quantized(x, Mode::fast, "ieee")).failing(), 0);  // both builds are honest
  }
  EXPECT_GT(different, 20);
}

TEST(SglPerTokenQuantFp8, AZeroRowGivesSignedZeros) {
  const Tensor x = rows(DType::bf16, 2, 8);
  for (std::int64_t i = 0; i < 8; ++i) quant::set(x, 8 + i, i % 2 == 0 ? 0.0 : -0.0);
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const auto op = quantized(x, mode);
    EXPECT_EQ(scale(op, 1), 0.0f);
    for (std::int64_t i = 0; i < 8; ++i) EXPECT_EQ(code(op, 8 + i), i % 2 == 0 ? 0x00u : 0x80u) << name(mode);
    EXPECT_EQ(judged(x, op).outcome, oracle::Outcome::pass);
  }
}

TEST(SglPerTokenQuantFp8, TheHopperKernelForFewTokensStores448InAZeroRow) {
  const Tensor x = rows(DType::bf16, 2, 8);
  for (std::int64_t i = 0; i < 8; ++i) quant::set(x, i, 0.0);
  const auto op = quantized(x, Mode::hopper);
  for (std::int64_t i = 0; i < 8; ++i) EXPECT_EQ(code(op, i), 0x7Eu);
  const oracle::Verdict verdict = judged(x, op);
  EXPECT_EQ(verdict.outcome, oracle::Outcome::known_defect);
  EXPECT_EQ(verdict.outputs[0].defect, "zero-row-448");
  op.output_q.as<std::uint8_t>()[3] = 0x7D;
  EXPECT_EQ(judged(x, op).outcome, oracle::Outcome::fail);

  const auto many = quantized(Tensor(DType::bf16, {2112, 4}), Mode::hopper);
  EXPECT_EQ(code(many, 4 * 2111), 0x00u);
}

TEST(SglPerTokenQuantFp8, NanIsPassedOverAndStoredAs448) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    for (const Mode mode : every_mode) {
      const Tensor x(type, {2, 68});
      for (std::int64_t i = 0; i < 68; ++i) quant::set(x, i, 1.0), quant::set(x, 68 + i, nan);
      quant::set(x, 5, nan);
      quant::set(x, 66, -2.0);
      const auto op = quantized(x, mode);
      EXPECT_EQ(scale(op, 0), 2.0f * (1.0f / 448.0f));
      EXPECT_EQ(code(op, 5), 0x7Eu);
      EXPECT_EQ(code(op, 66), 0xFEu);
      EXPECT_EQ(scale(op, 1), 0.0f) << "a row of NaN alone";
      EXPECT_EQ(code(op, 68), 0x7Eu);
    }
}

TEST(SglPerTokenQuantFp8, InfinityLeavesZerosAndStoresItselfAs448) {
  const Tensor x = rows(DType::bf16, 1, 8);
  quant::set(x, 2, -infinity);
  quant::set(x, 3, -1.0);
  for (const Mode mode : every_mode) {
    const auto op = quantized(x, mode);
    EXPECT_EQ(scale(op, 0), infinity);
    EXPECT_EQ(code(op, 2), 0x7Eu);  // inf * 0 is NaN
    EXPECT_EQ(code(op, 3), 0x80u);
    EXPECT_EQ(judged(x, op).outcome, oracle::Outcome::pass);
  }
}

TEST(SglPerTokenQuantFp8, CodesFollowTheStoredScaleWithinItsLastPlace) {
  const Tensor x = rows(DType::f32, 1, 512);
  auto op = quantized(x, Mode::golden);
  const float up = std::nextafter(scale(op, 0), infinity);
  op.output_s.as<float>()[0] = up;
  for (std::int64_t i = 0; i < 512; ++i) quant::set(op.output_q, i, x.as<float>()[i] * (1.0f / up));
  EXPECT_EQ(judged(x, op).outcome, oracle::Outcome::pass);
  op.output_s.as<float>()[0] = std::nextafter(std::nextafter(up, infinity), infinity);
  EXPECT_EQ(judged(x, op).outcome, oracle::Outcome::fail);
}

TEST(SglPerTokenQuantFp8, ANeighbouringCodeIsAnErrorAwayFromTheBoundary) {
  const Tensor x = rows(DType::bf16, 2, 64);
  const auto op = quantized(x, Mode::golden);
  ++op.output_q.as<std::uint8_t>()[17];
  EXPECT_EQ(judged(x, op).failing(), 1);
}

TEST(SglPerTokenQuantFp8, ARowOfDenormalsIsOpen) {
  const Tensor x(DType::f32, {1, 8});
  for (std::int64_t i = 0; i < 8; ++i) quant::set(x, i, 0x1p-140 * static_cast<double>(i + 1));
  for (const Mode mode : every_mode) EXPECT_EQ(judged(x, quantized(x, mode)).failing(), 0) << name(mode);
}

TEST(SglPerTokenQuantFp8, ScalesMayHaveOneOrTwoDimensionsAndKIsAMultipleOfFour) {
  const Tensor x = rows(DType::bf16, 3, 8);
  const ops::SglPerTokenQuantFp8 flat{.input = x, .output_q = {}, .output_s = Tensor(DType::f32, {3})};
  EXPECT_EQ(scale(ops::run(flat, in_mode(Mode::fast)), 2), scale(quantized(x, Mode::golden), 2));
  EXPECT_EQ(quantized(x, Mode::fast).output_s.shape(), (Dims{3, 1}));
  EXPECT_THROW(quantized(rows(DType::bf16, 3, 6), Mode::fast), Error);
  EXPECT_NO_THROW(quantized(Tensor(DType::bf16, {0, 8}), Mode::fast));
}

}  // namespace
}  // namespace dodona
