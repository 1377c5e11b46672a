#include "quant/nvfp4.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "dodona/error.h"
#include "quant/nibble.h"
#include "tests/quant/reference.h"

namespace dodona::quant {
namespace {

using namespace test;
using Block = std::array<float, 16>;

const ReferenceFormat& e4m3() {
  static const ReferenceFormat format(4, 3, 0x7E);
  return format;
}
const ReferenceFormat& e2m1() {
  static const ReferenceFormat format(2, 1, 7);
  return format;
}

unsigned code_at(const Nvfp4Block& block, int i) {
  return nibble(block.codes.data(), i);
}

Nvfp4Block quantize(const Block& x, float encode_scale, const Nvfp4Recipe& recipe = nvfp4_sgl_kernel) {
  return quantize_nvfp4_block(x, encode_scale, recipe);
}

/// The contract for finite blocks, with roundings by search.
Nvfp4Block reference_block(const Block& x, float S) {
  double largest = 0;
  for (const float value : x) largest = std::max(largest, std::fabs(static_cast<double>(value)));
  const float sixth = static_cast<float>(1.0 / 6.0);
  const float inner = static_cast<float>(largest * sixth);
  const float sfv = static_cast<float>(static_cast<double>(S) * inner);
  Nvfp4Block block{};
  block.scale = static_cast<std::uint8_t>(std::min(e4m3().nearest(sfv), 0x7Eu));
  const double scale = e4m3().values[block.scale];
  float r = 0;
  if (scale != 0) {
    const float inverse = static_cast<float>(1.0 / S);
    const float product = static_cast<float>(scale * inverse);
    r = static_cast<float>(1.0 / product);
  }
  for (int i = 0; i < 16; ++i) {
    const float value = static_cast<float>(static_cast<double>(x[static_cast<std::size_t>(i)]) * r);
    const unsigned code = std::min(e2m1().nearest(std::fabs(static_cast<double>(value))), 7u);
    set_nibble(block.codes.data(), i, code | (std::signbit(value) ? 8u : 0u));
  }
  return block;
}

TEST(Nvfp4, BlocksEqualTheContractOverScalesAndMagnitudes) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int trial = 0; trial < 20000; ++trial) {
    Block x;
    const float magnitude = std::ldexp(1.0f, static_cast<int>(random() % 24) - 12);
    for (float& value : x) value = normal(random) * magnitude;
    if (trial % 7 == 0) x[random() % 16] = 0.0f;
    if (trial % 5 == 0) x[random() % 16] *= 100.0f;
    const float S = std::exp2(static_cast<float>(random() % 1000) / 50.0f - 8.0f);
    ASSERT_EQ(quantize(x, S), reference_block(x, S)) << trial;
  }
}

TEST(Nvfp4, BlockWhoseMaximumIsSixTimesAPowerOfTwoIsExact) {
  for (int k = -6; k <= 8; ++k) {
    Block x{};
    for (int i = 0; i < 16; ++i)
      x[static_cast<std::size_t>(i)] = std::ldexp(static_cast<float>(e2m1().values[i % 8]), k) * (i < 8 ? 1.0f : -1.0f);
    const Nvfp4Block block = quantize(x, 1.0f);
    EXPECT_EQ(e4m3().values[block.scale], std::ldexp(1.0, k));
    for (int i = 0; i < 16; ++i) EXPECT_EQ(code_at(block, i), static_cast<unsigned>(i)) << k;
  }
}

TEST(Nvfp4, SingleNonZeroElementIsFoundAtEveryPosition) {
  for (std::size_t at = 0; at < 16; ++at) {
    Block x{};
    x[at] = -3.0f;
    const Nvfp4Block block = quantize(x, 1.0f);
    EXPECT_EQ(block.scale, 0x30);
    for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(code_at(block, static_cast<int>(i)), i == at ? 0xFu : 0u);
  }
}

TEST(Nvfp4, ZeroBlockHasScaleZeroAndKeepsSigns) {
  Block x{};
  x[3] = -0.0f;
  for (const Nvfp4Recipe& recipe : {nvfp4_sgl_kernel, nvfp4_flashinfer, nvfp4_flashinfer_exact}) {
    const Nvfp4Block block = quantize(x, 100.0f, recipe);
    EXPECT_EQ(block.scale, 0);
    for (int i = 0; i < 16; ++i) EXPECT_EQ(code_at(block, i), i == 3 ? 8u : 0u);
  }
}

TEST(Nvfp4, ScaleUnderflowZeroesTheBlockInSglKernelAndSaturatesItInFlashinfer) {
  Block x{};
  x[0] = 6 * 0x1p-10f;  // sfv = 2^-10, the tie that goes to zero
  x[1] = -0x1p-20f;
  x[2] = -0.0f;
  const Nvfp4Block sgl = quantize(x, 1.0f, nvfp4_sgl_kernel);
  EXPECT_EQ(sgl.scale, 0);
  EXPECT_EQ(code_at(sgl, 0), 0u);
  EXPECT_EQ(code_at(sgl, 1), 8u);
  const Nvfp4Block flashinfer = quantize(x, 1.0f, nvfp4_flashinfer);
  EXPECT_EQ(flashinfer.scale, 0);
  EXPECT_EQ(code_at(flashinfer, 0), 7u);
  EXPECT_EQ(code_at(flashinfer, 1), 0xFu);
  EXPECT_EQ(code_at(flashinfer, 2), 7u) << "zero times infinity is NaN, and NaN becomes +6";
  const Nvfp4Block exact = quantize(x, 1.0f, nvfp4_flashinfer_exact);
  EXPECT_EQ(code_at(exact, 0), 7u);
  EXPECT_EQ(code_at(exact, 2), 8u) << "r is limited to the largest fp32, so zero stays zero";
  x[0] = 6 * up(0x1p-10f);
  EXPECT_EQ(quantize(x, 1.0f).scale, 1);
}

TEST(Nvfp4, ScaleOverflowSaturatesAt448) {
  Block x{};
  x[0] = 6000.0f;
  x[1] = 448.0f;
  const Nvfp4Block block = quantize(x, 1.0f);
  EXPECT_EQ(block.scale, 0x7E);
  EXPECT_EQ(code_at(block, 0), 7u);
  EXPECT_EQ(code_at(block, 1), 2u);
}

TEST(Nvfp4, ScaleRoundsToEvenAtE4m3Ties) {
  Block x{};
  x[0] = 6 * 1.0625f;  // between 1 and 1.125
  EXPECT_EQ(quantize(x, 1.0f).scale, 0x38);
  x[0] = 6 * 1.1875f;  // between 1.125 and 1.25
  EXPECT_EQ(quantize(x, 1.0f).scale, 0x3A);
}

TEST(Nvfp4, NanDoesNotCountForTheScaleAndBecomesSix) {
  Block x{};
  x[0] = 3.0f;
  x[5] = f32_nan;
  x[6] = -f32_nan;
  const Nvfp4Block block = quantize(x, 1.0f);
  EXPECT_EQ(block.scale, 0x30);
  EXPECT_EQ(code_at(block, 0), 7u);
  EXPECT_EQ(code_at(block, 5), 7u);
  EXPECT_EQ(code_at(block, 6), 7u);
  x.fill(f32_nan);
  const Nvfp4Block all = quantize(x, 1.0f);
  EXPECT_EQ(all.scale, 0x7F);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(code_at(all, i), 7u);
}

TEST(Nvfp4, InfinityTakesTheLargestScaleAndCode) {
  Block x{};
  x[0] = -f32_infinity;
  x[1] = 448.0f * 3;
  const Nvfp4Block block = quantize(x, 1.0f);
  EXPECT_EQ(block.scale, 0x7E);
  EXPECT_EQ(code_at(block, 0), 0xFu);
  EXPECT_EQ(code_at(block, 1), 5u);
}

TEST(Nvfp4, EncodeScaleZeroZeroesEverything) {
  Block x{};
  x[0] = 5.0f;
  x[1] = -5.0f;
  const Nvfp4Block block = quantize(x, 0.0f);
  EXPECT_EQ(block.scale, 0);
  EXPECT_EQ(code_at(block, 0), 0u);
  EXPECT_EQ(code_at(block, 1), 8u);
}

TEST(Nvfp4, EncodeScaleMapsTheTensorMaximumTo448Times6) {
  EXPECT_EQ(nvfp4_encode_scale(2688.0f), 1.0f);
  EXPECT_EQ(nvfp4_encode_scale(1.0f), 2688.0f);
  EXPECT_EQ(nvfp4_decode_scale(2688.0f), 1.0f);
  Block x{};
  x[7] = 10.0f;
  EXPECT_EQ(quantize(x, nvfp4_encode_scale(10.0f)).scale, 0x7E);
}

float one_ulp_too_large(float x) {
  return up(1.0f / x);
}

TEST(Nvfp4, AnotherReciprocalCanFlipACodeAtABoundary) {
  Block x{};
  x[0] = 6.0f;
  x[1] = 3.5f;  // a tie, to 4
  EXPECT_EQ(code_at(quantize(x, 1.0f), 1), 6u);
  Nvfp4Recipe recipe;
  recipe.ops.reciprocal = one_ulp_too_large;
  const Nvfp4Block block = quantize(x, 1.0f, recipe);
  EXPECT_EQ(block.scale, 0x38);
  EXPECT_EQ(code_at(block, 1), 5u);
}

TEST(Nvfp4, ExactModeAssociatesTheScaleDifferently) {
  // sfv = amax * (S/6) instead of S * (amax/6): somewhere one is a tie of e4m3 and the other is not.
  std::mt19937 random(11);
  int different = 0;
  for (int trial = 0; trial < 200000 && different == 0; ++trial) {
    Block x{};
    x[0] = static_cast<float>(random() % 4096 + 1) / 64.0f;
    const float S = static_cast<float>(random() % 64 + 1) / 8.0f;
    const Nvfp4Block exact = quantize(x, S, nvfp4_flashinfer_exact);
    const float sfv = x[0] * (S * (1.0f / 6.0f));
    ASSERT_EQ(exact.scale, std::min(e4m3().nearest(sfv), 0x7Eu));
    different += exact.scale != quantize(x, S, nvfp4_flashinfer).scale;
  }
  EXPECT_GT(different, 0);
}

TEST(Nvfp4, FourOverSixTakesTheScaleWithTheSmallerError) {
  Nvfp4Recipe recipe = nvfp4_flashinfer_exact;
  recipe.four_over_six = FourOverSix::mae;
  Block x;
  x.fill(5.0f);  // with 6 mapped to 6 it becomes 4, with 6 mapped to 4 it becomes 4.5
  x[0] = 6.0f;
  const Nvfp4Block four = quantize(x, 1.0f, recipe);
  EXPECT_EQ(four.scale, 0x3C);
  EXPECT_EQ(code_at(four, 0), 6u);
  EXPECT_EQ(code_at(four, 1), 5u);
  x.fill(3.0f);
  x[0] = 6.0f;  // both are exact: the tie goes to 6
  EXPECT_EQ(quantize(x, 1.0f, recipe).scale, 0x38);
}

double error_of(const Block& x, const Nvfp4Block& block, bool squared) {
  double sum = 0;
  for (int i = 0; i < 16; ++i) {
    const unsigned code = code_at(block, i);
    const double value = e2m1().values[code & 7] * (code >= 8 ? -1 : 1) * e4m3().values[block.scale];
    const double error = std::fabs(value - x[static_cast<std::size_t>(i)]);
    sum += squared ? error * error : error;
  }
  return sum;
}

TEST(Nvfp4, FourOverSixNeverIncreasesItsErrorMeasureAndTheMeasuresDiffer) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  Nvfp4Recipe mae = nvfp4_flashinfer, mse = nvfp4_flashinfer;
  mae.four_over_six = FourOverSix::mae;
  mse.four_over_six = FourOverSix::mse;
  int improved = 0, differ = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    Block x;
    for (float& value : x) value = normal(random);
    const Nvfp4Block six = quantize(x, 1.0f, nvfp4_flashinfer), by_mae = quantize(x, 1.0f, mae), by_mse = quantize(x, 1.0f, mse);
    EXPECT_LE(error_of(x, by_mae, false), error_of(x, six, false) + 1e-5);
    EXPECT_LE(error_of(x, by_mse, true), error_of(x, six, true) + 1e-5);
    improved += by_mae.scale != six.scale;
    differ += by_mae.scale != by_mse.scale;
  }
  EXPECT_GT(improved, 100);
  EXPECT_GT(differ, 10);
}

TEST(Nvfp4, E4m3InputIsScaledBySixOverSAndRoundedToHalf) {
  std::array<std::uint8_t, 16> x{};
  x[0] = 0x38;  // 1
  x[1] = 0x30;  // 0.5
  x[2] = 0xB8;  // -1
  const Nvfp4Block block = quantize_nvfp4_block_from_e4m3(x, 1.0f, flushing_reciprocal_ops);
  EXPECT_EQ(block.scale, 0x38);
  EXPECT_EQ(code_at(block, 0), 7u);
  EXPECT_EQ(code_at(block, 1), 5u);
  EXPECT_EQ(code_at(block, 2), 0xFu);
  EXPECT_EQ(code_at(block, 3), 0u);
  x.fill(0);
  EXPECT_EQ(quantize_nvfp4_block_from_e4m3(x, 1.0f, flushing_reciprocal_ops), Nvfp4Block{});
}

TEST(Nvfp4, MatrixIsQuantizedBlockByBlockAndDequantizedExactlyInDouble) {
  constexpr std::int64_t rows = 3, columns = 48;
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  std::vector<float> x(rows * columns), back(x.size());
  for (float& value : x) value = normal(random);
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::fabs(value));
  std::vector<std::uint8_t> codes(rows * columns / 2), scales(rows * columns / 16);
  quantize_nvfp4(x, rows, columns, nvfp4_encode_scale(largest), nvfp4_sgl_kernel, codes, scales);
  std::vector<double> exact(x.size());
  const float g = nvfp4_decode_scale(largest);
  dequantize_nvfp4(codes, scales, rows, columns, g, back);
  dequantize_nvfp4(codes, scales, rows, columns, g, exact);
  for (std::size_t i = 0; i < x.size(); ++i) {
    Block block;
    std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(i / 16 * 16), 16, block.begin());
    const Nvfp4Block expected = reference_block(block, nvfp4_encode_scale(largest));
    const unsigned code = nibble(codes.data(), static_cast<std::int64_t>(i));
    ASSERT_EQ(code, code_at(expected, static_cast<int>(i % 16)));
    ASSERT_EQ(scales[i / 16], expected.scale);
    const double product = e2m1().values[code & 7] * (code >= 8 ? -1 : 1) * e4m3().values[expected.scale];
    EXPECT_EQ(exact[i], product * g);
    EXPECT_EQ(back[i], static_cast<float>(product * g));
    // Half a step of e2m1 at the top is 1 of 6, and the scale adds its own sixteenth.
    float block_largest = 0;
    for (const float value : block) block_largest = std::max(block_largest, std::fabs(value));
    EXPECT_LE(std::fabs(exact[i] - x[i]), block_largest * (1.0 / 6 + 1.0 / 16 + 0.01));
  }
}

TEST(Nvfp4, NanScaleDequantizesToNan) {
  std::vector<std::uint8_t> codes(8), scales{0x7F};
  std::vector<float> x(16);
  dequantize_nvfp4(codes, scales, 1, 16, 1.0f, x);
  EXPECT_TRUE(std::isnan(x[0]));
}

TEST(Nvfp4, SizesThatDoNotFitThrow) {
  std::vector<float> x(24);
  std::vector<std::uint8_t> codes(12), scales(1);
  EXPECT_THROW(quantize_nvfp4(x, 1, 24, 1.0f, nvfp4_sgl_kernel, codes, scales), Error);
  EXPECT_THROW(quantize_nvfp4(x, 1, 16, 1.0f, nvfp4_sgl_kernel, codes, scales), Error);
  EXPECT_THROW(dequantize_nvfp4(codes, scales, 1, 32, 1.0f, std::span(x)), Error);
}

TEST(Fp32Ops, FlushingReciprocal) {
  EXPECT_EQ(bits_of(reciprocal_ftz(6.0f)), 0x3E2AAAABu);
  EXPECT_EQ(bits_of(reciprocal_ftz(448.0f)), 0x3B124925u);
  EXPECT_EQ(reciprocal_ftz(0.0f), f32_infinity);
  EXPECT_EQ(reciprocal_ftz(-0.0f), -f32_infinity);
  EXPECT_EQ(reciprocal_ftz(down(0x1p-126f)), f32_infinity);
  EXPECT_EQ(reciprocal_ftz(0x1p-126f), 0x1p126f);
  EXPECT_EQ(reciprocal_ftz(0x1p126f), 0x1p-126f);
  EXPECT_EQ(reciprocal_ftz(up(0x1p126f)), 0.0f);
  EXPECT_TRUE(std::signbit(reciprocal_ftz(-0x1p127f)));
  EXPECT_EQ(reciprocal_ftz(f32_infinity), 0.0f);
  EXPECT_TRUE(std::isnan(reciprocal_ftz(f32_nan)));
}

TEST(Fp32Ops, DivisionByReciprocalDiffersFromDivisionInLastBits) {
  int different = 0;
  for (int m = 128; m < 256; ++m) {
    const auto x = static_cast<float>(m);
    const float y = reciprocal_division_ops.divide(x, 448.0f);
    EXPECT_EQ(y, x * static_cast<float>(1.0 / 448.0));
    different += y != ieee_ops.divide(x, 448.0f);
  }
  EXPECT_EQ(different, 71);
}

}  // namespace
}  // namespace dodona::quant
