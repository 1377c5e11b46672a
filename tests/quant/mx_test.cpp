#include "quant/mx.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "dodona/error.h"
#include "quant/e4m3.h"
#include "quant/nibble.h"
#include "quant/ue8m0.h"
#include "tests/quant/reference.h"

namespace dodona::quant {
namespace {

using namespace test;
using Block = std::array<float, 32>;

const ReferenceFormat& e4m3() {
  static const ReferenceFormat format(4, 3, 0x7E);
  return format;
}
const ReferenceFormat& e2m1() {
  static const ReferenceFormat format(2, 1, 7);
  return format;
}

/// Exponent of the smallest power of two not below amax * fl32(1/largest).
int reference_exponent(const Block& x, float largest) {
  float block_amax = 0;
  for (const float value : x) block_amax = std::max(block_amax, std::fabs(value));
  int exponent = 0;
  const float mantissa = std::frexp(block_amax * (1.0f / largest), &exponent);
  return mantissa == 0.5f ? exponent - 1 : exponent;
}

TEST(Mx, BlocksEqualTheContract) {
  std::mt19937 random(17);
  std::normal_distribution<float> normal;
  for (int trial = 0; trial < 5000; ++trial) {
    Block x;
    const float magnitude = std::ldexp(1.0f, static_cast<int>(random() % 100) - 50);
    for (float& value : x) value = normal(random) * magnitude;
    const Mxfp4Block four = quantize_mxfp4_block(x);
    const Mxfp8Block eight = quantize_mxfp8_block(x);
    const int e4 = reference_exponent(x, 6.0f), e8 = reference_exponent(x, 448.0f);
    ASSERT_EQ(four.scale, e4 + 127);
    ASSERT_EQ(eight.scale, e8 + 127);
    for (int i = 0; i < 32; ++i) {
      const double value = x[static_cast<std::size_t>(i)];
      const unsigned sign = std::signbit(value) ? 1 : 0;
      ASSERT_EQ(nibble(four.codes.data(), i), e2m1().nearest(std::ldexp(std::fabs(value), -e4)) | sign << 3);
      ASSERT_EQ(eight.codes[static_cast<std::size_t>(i)], e4m3().nearest(std::ldexp(std::fabs(value), -e8)) | sign << 7);
    }
  }
}

TEST(Mx, ScaleIsExactForSixTimesAPowerOfTwoAndDoublesJustAbove) {
  for (int k = -100; k <= 100; ++k) {
    Block x;
    x.fill(std::ldexp(6.0f, k));
    const Mxfp4Block exact = quantize_mxfp4_block(x);
    EXPECT_EQ(exact.scale, k + 127);
    EXPECT_EQ(exact.codes[0], 0x77);
    x[5] = up(std::ldexp(6.0f, k));
    EXPECT_EQ(quantize_mxfp4_block(x).scale, k + 128);
    x.fill(std::ldexp(448.0f, k));
    EXPECT_EQ(quantize_mxfp8_block(x).scale, k + 127);
    EXPECT_EQ(quantize_mxfp8_block(x).codes[0], 0x7E);
  }
}

TEST(Mx, ZeroBlockHasScaleByteZero) {
  Block x{};
  x[1] = -0.0f;
  const Mxfp4Block four = quantize_mxfp4_block(x);
  EXPECT_EQ(four.scale, 0);
  EXPECT_EQ(four.codes[0], 0x80);
  EXPECT_EQ(four.codes[1], 0x00);
  const Mxfp8Block eight = quantize_mxfp8_block(x);
  EXPECT_EQ(eight.scale, 0);
  EXPECT_EQ(eight.codes[0], 0x00);
  EXPECT_EQ(eight.codes[1], 0x80);
}

TEST(Mx, ScaleByteZeroZeroesTinyElements) {
  Block x{};
  x[0] = 0x1p-127f;
  x[1] = -0x1p-130f;
  const Mxfp4Block four = quantize_mxfp4_block(x);
  EXPECT_EQ(four.scale, 0);
  EXPECT_EQ(four.codes[0], 0x80);
  EXPECT_EQ(quantize_mxfp8_block(x).codes[0], 0x00);
  EXPECT_EQ(quantize_mxfp8_block(x).codes[1], 0x80);
}

TEST(Mx, InfinityAndNan) {
  Block x{};
  x[0] = f32_infinity;
  x[1] = -f32_infinity;
  x[2] = f32_nan;
  x[3] = 1e30f;
  const Mxfp4Block four = quantize_mxfp4_block(x);
  EXPECT_EQ(four.scale, 0xFE);
  EXPECT_EQ(four.codes[0], 0xF7);
  EXPECT_EQ(four.codes[1], 0x07);
  const Mxfp8Block eight = quantize_mxfp8_block(x);
  EXPECT_EQ(eight.scale, 0xFE);
  EXPECT_EQ(eight.codes[0], 0x7E);
  EXPECT_EQ(eight.codes[1], 0xFE);
  EXPECT_EQ(eight.codes[2], 0x7F);
  EXPECT_EQ(eight.codes[3], 0x00);
  x.fill(f32_nan);
  EXPECT_EQ(quantize_mxfp4_block(x).scale, 0xFF);
  EXPECT_EQ(quantize_mxfp8_block(x).scale, 0xFF);
  x[0] = 6.0f;
  EXPECT_EQ(quantize_mxfp4_block(x).scale, 127) << "NaN does not count where there is a number";
}

TEST(Mx, MatricesComeBackWithinHalfAStep) {
  constexpr std::int64_t rows = 4, columns = 96;
  std::mt19937 random(23);
  std::normal_distribution<float> normal;
  std::vector<float> x(rows * columns), back(x.size());
  for (float& value : x) value = normal(random);
  std::vector<std::uint8_t> codes4(rows * columns / 2), codes8(rows * columns), scales(rows * columns / 32);
  quantize_mxfp4(x, rows, columns, codes4, scales);
  dequantize_mxfp4(codes4, scales, rows, columns, back);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_LE(std::fabs(back[i] - x[i]), ue8m0_value(scales[i / 32]));
  quantize_mxfp8(x, rows, columns, codes8, scales);
  dequantize_mxfp8(codes8, scales, rows, columns, back);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(std::fabs(back[i] - x[i]), std::max(std::fabs(x[i]) / 16, ue8m0_value(scales[i / 32]) * 0x1p-10f));
    EXPECT_EQ(back[i], e4m3_to_f32(codes8[i]) * ue8m0_value(scales[i / 32]));
  }
}

TEST(Mx, UtilQuantizerRoundsTiesDownAndDividesBySix) {
  Block x{};
  x[0] = 6.0f;
  x[1] = 3.5f;
  x[2] = -0.75f;
  const Mxfp4Block block = quantize_mxfp4_block_util(x);
  EXPECT_EQ(block.scale, 127);
  EXPECT_EQ(block.codes[0], 0x57);
  EXPECT_EQ(block.codes[1], 0x89);
  EXPECT_EQ(block.codes[2], 0x88);
  x.fill(0.0f);
  EXPECT_EQ(quantize_mxfp4_block_util(x).scale, 0);
  x[0] = f32_infinity;
  EXPECT_EQ(quantize_mxfp4_block_util(x).scale, 255);
  x[0] = 1e-45f;
  EXPECT_EQ(quantize_mxfp4_block_util(x).scale, 0);
}

TEST(Mx, SizesThatDoNotFitThrow) {
  std::vector<float> x(48);
  std::vector<std::uint8_t> codes(24), scales(2);
  EXPECT_THROW(quantize_mxfp4(x, 1, 48, codes, scales), Error);
  EXPECT_THROW(quantize_mxfp8(x, 1, 32, codes, scales), Error);
  EXPECT_THROW(dequantize_mxfp4(codes, scales, 1, 32, x), Error);
}

}  // namespace
}  // namespace dodona::quant
