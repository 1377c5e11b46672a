// Rules of scaled_fp4_quant.
#include "ops/quantization/scaled_fp4_quant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "dodona/error.h"
#include "oracle/judge/judge.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/element.h"
#include "quant/nvfp4.h"
#include "quant/swizzle.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using helpers::in_mode;

constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
constexpr Mode every_mode[] = {Mode::golden, Mode::fast, Mode::hopper};
constexpr auto layout = quant::ScaleLayout::swizzled_128x4;

Tensor rows(DType type, std::int64_t m, std::int64_t k) {
  const Tensor x(type, {m, k});
  for (std::int64_t i = 0; i < x.elements(); ++i)
    quant::set(x, i, std::sin(0.7 * static_cast<double>(i)) * std::exp2(static_cast<double>(i % 7)));
  return x;
}
Tensor number(float value) {
  const Tensor t(DType::f32, {1});
  *t.as<float>() = value;
  return t;
}

ops::ScaledFp4Quant quantized(const Tensor& x, float encode_scale, Mode mode, const std::string& zero_block = "scale") {
  return ops::run(
      ops::ScaledFp4Quant{
          .input = x, .input_global_scale = number(encode_scale), .output = {}, .output_scale = {}, .zero_block = zero_block},
      in_mode(mode));
}
unsigned code(const ops::ScaledFp4Quant& op, std::int64_t i) {
  return op.output.as<std::uint8_t>()[i / 2] >> (4 * (i % 2)) & 0xFu;
}
unsigned scale(const ops::ScaledFp4Quant& op, std::int64_t m, std::int64_t c) {
  return op.output_scale.as<std::uint8_t>()[quant::scale_offset(layout, m, c, op.input.size(-1) / 16)];
}

oracle::Verdict judged(const ops::ScaledFp4Quant& actual) {
  Arguments inputs;
  inputs.set("input", actual.input);
  inputs.set("input_global_scale", actual.input_global_scale);
  inputs.set_attr("zero_block", actual.zero_block);
  return oracle::judge(registry().at("scaled_fp4_quant"), inputs, {{"output", actual.output}, {"output_scale", actual.output_scale}}, {});
}

TEST(ScaledFp4Quant, IsTheBlockQuantizerOnEveryBlockAndPlacesScalesInTiles) {
  for (const DType type : {DType::bf16, DType::f16})
    for (const char* zero_block : {"scale", "amax"})
      for (const std::int64_t k : {16, 48, 80, 256, 272, 1104}) {
        const Tensor x = rows(type, 35, k);
        const auto fast = quantized(x, 1.7f, Mode::fast, zero_block), golden = quantized(x, 1.7f, Mode::golden, zero_block);
        std::vector<float> wide(static_cast<std::size_t>(35 * k));
        std::vector<std::uint8_t> codes(wide.size() / 2), scales(wide.size() / 16);
        quant::to_f32(type, x.data(), wide.data(), 35 * k);
        const auto& recipe = std::string(zero_block) == "amax" ? quant::nvfp4_flashinfer : quant::nvfp4_sgl_kernel;
        quant::quantize_nvfp4(wide, 35, k, 1.7f, recipe, codes, scales);
        for (const auto* op : {&fast, &golden}) {
          ASSERT_TRUE(std::equal(codes.begin(), codes.end(), op->output.as<std::uint8_t>())) << name(type) << ' ' << k;
          for (std::int64_t m = 0; m < 35; ++m)
            for (std::int64_t c = 0; c < k / 16; ++c) ASSERT_EQ(scale(*op, m, c), scales[static_cast<std::size_t>(m * (k / 16) + c)]);
        }
      }
}

TEST(ScaledFp4Quant, ABlockWithOneNonZeroElementFindsItWhereverItIs) {
  const Tensor x(DType::bf16, {16, 16});
  for (std::int64_t i = 0; i < 16; ++i) quant::set(x, i * 17, -6.0);
  for (const Mode mode : every_mode) {
    const auto op = quantized(x, 1.0f, mode);
    for (std::int64_t i = 0; i < 16; ++i) {
      EXPECT_EQ(scale(op, i, 0), 0x38u) << name(mode);  // 1
      for (std::int64_t j = 0; j < 16; ++j) EXPECT_EQ(code(op, i * 16 + j), i == j ? 0xFu : 0x0u) << name(mode);
    }
  }
}

TEST(ScaledFp4Quant, TiesGoToEvenCodesAndZerosKeepTheirSign) {
  const double values[] = {6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.0, -0.1, -0.25, -0.75, -2.5, -5, 5.01, 0.26};
  const unsigned expected[] = {7, 0, 2, 2, 4, 4, 6, 6, 8, 8, 8, 0xA, 0xC, 0xE, 7, 1};
  const Tensor x(DType::f16, {1, 16});
  for (std::int64_t i = 0; i < 16; ++i) quant::set(x, i, values[i]);
  for (const Mode mode : every_mode)
    for (std::int64_t i = 0; i < 16; ++i) EXPECT_EQ(code(quantized(x, 1.0f, mode), i), expected[i]) << name(mode) << ' ' << values[i];
}

TEST(ScaledFp4Quant, AScaleThatRoundsToZeroMakesZerosOrSixesByRecipe) {
  const Tensor x(DType::bf16, {1, 16});
  for (std::int64_t i = 0; i < 16; ++i) quant::set(x, i, i == 3 ? 0.0 : i % 2 == 0 ? 0x1p-12 : -0x1p-12);
  for (const Mode mode : every_mode) {
    const auto op = quantized(x, 1.0f, mode);
    EXPECT_EQ(scale(op, 0, 0), 0u);
    for (std::int64_t i = 0; i < 16; ++i) EXPECT_EQ(code(op, i), i == 3 || i % 2 == 0 ? 0x0u : 0x8u) << name(mode);
  }
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const auto op = quantized(x, 1.0f, mode, "amax");
    for (std::int64_t i = 0; i < 16; ++i) EXPECT_EQ(code(op, i), i == 3 || i % 2 == 0 ? 0x7u : 0xFu) << name(mode);  // 0 * inf is NaN
    EXPECT_EQ(judged(op).failing(), 0);
  }
  EXPECT_THROW(quantized(x, 1.0f, Mode::hopper, "amax"), Error);
}

TEST(ScaledFp4Quant, ZeroBlocksAndAZeroGlobalScaleGiveZeros) {
  const Tensor zeros(DType::bf16, {1, 32}), x = rows(DType::bf16, 1, 32);
  quant::set(zeros, 1, -0.0);
  for (const Mode mode : every_mode) {
    EXPECT_EQ(code(quantized(zeros, 3.0f, mode), 0), 0x0u);
    EXPECT_EQ(code(quantized(zeros, 3.0f, mode), 1), 0x8u);
    EXPECT_EQ(scale(quantized(x, 0.0f, mode), 0, 0), 0x0u);
    EXPECT_EQ(code(quantized(x, 0.0f, mode), 5) & 7u, 0x0u);
  }
}

TEST(ScaledFp4Quant, NanElementsArePassedOverAndBecomeSix) {
  for (const DType type : {DType::bf16, DType::f16})
    for (const float quiet : {nan, -nan}) {
      const Tensor x(type, {1, 48});
      for (std::int64_t i = 0; i < 32; ++i) quant::set(x, i, -6.0);
      for (std::int64_t i = 32; i < 48; ++i) quant::set(x, i, quiet);
      quant::set(x, 7, quiet);
      for (const Mode mode : every_mode) {
        const auto op = quantized(x, 1.0f, mode);
        EXPECT_EQ(scale(op, 0, 0), 0x38u);
        EXPECT_EQ(code(op, 6), 0xFu);
        EXPECT_EQ(code(op, 7), 0x7u) << name(mode);
        EXPECT_EQ(code(op, 16), 0xFu);
        EXPECT_EQ(scale(op, 0, 2), 0x7Fu) << "nothing but NaN";
        EXPECT_EQ(code(op, 40), 0x7u) << name(mode);
        EXPECT_EQ(judged(op).failing(), 0);
      }
    }
}

TEST(ScaledFp4Quant, InfinitySaturatesTheScale) {
  const Tensor x(DType::bf16, {1, 16});
  quant::set(x, 0, -infinity);
  quant::set(x, 1, 448.0);
  for (const Mode mode : every_mode) {
    const auto op = quantized(x, 1.0f, mode);
    EXPECT_EQ(scale(op, 0, 0), 0x7Eu);
    EXPECT_EQ(code(op, 0), 0xFu);
    EXPECT_EQ(code(op, 1), 0x2u);
  }
}

TEST(ScaledFp4Quant, PaddingIsZeroAndNotCompared) {
  const Tensor x = rows(DType::bf16, 3, 80);
  for (const Mode mode : every_mode) {
    ops::ScaledFp4Quant op{.input = x, .input_global_scale = number(1.0f), .output = {}, .output_scale = Tensor(DType::f8_e4m3, {128, 8})};
    std::fill_n(op.output_scale.as<std::uint8_t>(), 128 * 8, std::uint8_t{0x55});
    op = ops::run(op, in_mode(mode));
    const std::int64_t free = quant::scale_offset(layout, 3, 0, 5), beside = quant::scale_offset(layout, 0, 5, 5);
    EXPECT_EQ(op.output_scale.as<std::uint8_t>()[free], 0) << name(mode);
    EXPECT_EQ(op.output_scale.as<std::uint8_t>()[beside], 0) << name(mode);
    op.output_scale.as<std::uint8_t>()[free] = op.output_scale.as<std::uint8_t>()[beside] = 0x33;
    EXPECT_EQ(judged(op).outcome, oracle::Outcome::pass);
  }
}

TEST(ScaledFp4Quant, AWrongScaleIsReportedOnceAndCodesThatFollowItAreNot) {
  const Tensor x = rows(DType::bf16, 2, 64);
  const auto op = quantized(x, 1.0f, Mode::golden);
  auto& stored = op.output_scale.as<std::uint8_t>()[quant::scale_offset(layout, 1, 2, 4)];
  const float before = quant::e4m3_to_f32(stored), after = quant::e4m3_to_f32(++stored);
  for (std::int64_t i = 0; i < 16; ++i) {
    const std::int64_t linear = 64 + 32 + i;
    const float factor = 1.0f / after;
    const unsigned wanted = quant::to_e2m1(static_cast<float>(quant::get(x, linear)) * factor), shift = linear % 2 == 0 ? 0u : 4u;
    auto& byte = op.output.as<std::uint8_t>()[linear / 2];
    byte = static_cast<std::uint8_t>((byte & ~(0xFu << shift)) | wanted << shift);
  }
  EXPECT_NE(before, after);
  const oracle::Verdict verdict = judged(op);
  EXPECT_EQ(verdict.outputs[0].failing, 0);
  EXPECT_EQ(verdict.outputs[1].failing, 1);
}

TEST(ScaledFp4Quant, AWrongNibbleFailsAlone) {
  const auto op = quantized(rows(DType::f16, 2, 64), 1.0f, Mode::golden);
  op.output.as<std::uint8_t>()[9] ^= 0x20;
  const oracle::Verdict verdict = judged(op);
  EXPECT_EQ(verdict.failing(), 1);
  ASSERT_EQ(verdict.outputs[0].worst.size(), 1u);
  EXPECT_EQ(verdict.outputs[0].worst[0].linear, 19);
}

TEST(ScaledFp4Quant, LeadingDimensionsCountAsOne) {
  const Tensor x = rows(DType::bf16, 6, 32), flat = rows(DType::bf16, 1, 32).reshape({32});
  EXPECT_EQ(quantized(x.reshape({2, 3, 32}), 1.0f, Mode::fast).output.shape(), (Dims{6, 16}));
  EXPECT_EQ(quantized(flat, 1.0f, Mode::fast).output.shape(), (Dims{1, 16}));
  EXPECT_EQ(quantized(x, 1.0f, Mode::fast).output_scale.shape(), (Dims{128, 4}));
  EXPECT_THROW(quantized(rows(DType::bf16, 2, 24), 1.0f, Mode::fast), Error);
}

}  // namespace
}  // namespace dodona
