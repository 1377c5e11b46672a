#include "quant/fp8_block.h"

#include <gtest/gtest.h>

#include <random>

#include "dodona/error.h"
#include "quant/e4m3.h"
#include "quant/half.h"
#include "tests/quant/reference.h"

namespace dodona::quant {
namespace {

using namespace test;

std::vector<float> normal_values(std::size_t n, unsigned seed, float magnitude = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& value : x) value = normal(random) * magnitude;
  return x;
}

float largest_of(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::fabs(value));
  return largest;
}

std::uint8_t reference_code(float value) {
  static const ReferenceFormat e4m3(4, 3, 0x7E);
  const unsigned code = std::min(e4m3.nearest(std::fabs(static_cast<double>(value))), 0x7Eu);
  return static_cast<std::uint8_t>((std::signbit(value) ? 0x80u : 0u) | code);
}

GroupRecipe with(GroupRecipe recipe, ScaleRule rule) {
  recipe.rule = rule;
  return recipe;
}

TEST(Fp8Group, Version1DividesByAmaxOver448) {
  const std::vector<float> x = normal_values(128, 1);
  std::vector<std::uint8_t> codes(128);
  const float scale = quantize_fp8_group(x, sgl_group_quant_v1, codes);
  EXPECT_EQ(scale, largest_of(x) / 448.0f);
  for (std::size_t i = 0; i < 128; ++i) EXPECT_EQ(codes[i], reference_code(x[i] / scale));
}

TEST(Fp8Group, Version2MultipliesByReciprocals) {
  int scales_differ = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    const std::vector<float> x = normal_values(128, seed);
    std::vector<std::uint8_t> codes(128);
    const float largest = largest_of(x), scale = quantize_fp8_group(x, sgl_group_quant_v2, codes);
    EXPECT_EQ(scale, largest * (1.0f / 448.0f));
    const float factor = 448.0f / largest;
    for (std::size_t i = 0; i < 128; ++i) EXPECT_EQ(codes[i], reference_code(x[i] * factor));
    scales_differ += scale != largest / 448.0f;
  }
  EXPECT_GT(scales_differ, 5);
}

TEST(GroupScale, EachFormHasItsOwnOperand) {
  int differ = 0;
  GroupRecipe reciprocal = sgl_group_quant_v1;
  reciprocal.form = ScaleForm::reciprocal;
  for (int m = 128; m < 256; ++m) {
    const float largest = static_cast<float>(m) * 0x1p-5f;
    const GroupScale v1 = group_scale(largest, 448.0f, sgl_group_quant_v1), v2 = group_scale(largest, 448.0f, sgl_group_quant_v2);
    const GroupScale inverse = group_scale(largest, 448.0f, reciprocal);
    EXPECT_EQ(v1.scale, largest / 448.0f);
    EXPECT_EQ(v1.operand, v1.scale);
    EXPECT_EQ(v2.scale, largest * (1.0f / 448.0f));
    EXPECT_EQ(v2.operand, 448.0f / largest);
    EXPECT_EQ(inverse.scale, v1.scale);
    EXPECT_EQ(inverse.operand, 1.0f / v1.scale);
    differ += v2.operand != 1.0f / v2.scale;
  }
  EXPECT_GT(differ, 10);
}

TEST(Fp8Group, ReciprocalDivisionReproducesFastMathForm) {
  const std::vector<float> x = normal_values(128, 2);
  GroupRecipe recipe = sgl_group_quant_v1;
  recipe.ops = reciprocal_division_ops;
  std::vector<std::uint8_t> codes(128);
  const float scale = quantize_fp8_group(x, recipe, codes);
  EXPECT_EQ(scale, largest_of(x) * (1.0f / 448.0f));
  for (std::size_t i = 0; i < 128; ++i) EXPECT_EQ(codes[i], reference_code(x[i] * (1.0f / scale)));
}

TEST(Fp8Group, FloorsOfTheThreeSources) {
  const std::vector<float> zeros(128);
  std::vector<std::uint8_t> codes(128, 0xEE);
  EXPECT_EQ(quantize_fp8_group(zeros, deepseek_act_quant, codes), 1e-4f / 448.0f);
  EXPECT_EQ(codes, std::vector<std::uint8_t>(128));
  EXPECT_EQ(quantize_fp8_group(zeros, sgl_group_quant_v1, codes), 1e-10f / 448.0f);
  EXPECT_EQ(quantize_fp8_group(zeros, sgl_group_quant_v2, codes), 1e-10f * (1.0f / 448.0f));
  EXPECT_EQ(quantize_fp8_group(zeros, with(sgl_group_quant_v1, ScaleRule::ceil_log2), codes), 0x1p-33f);
  EXPECT_EQ(quantize_fp8_group(zeros, with(sgl_group_quant_v2, ScaleRule::ceil_bits), codes), 0x1p-42f);
  EXPECT_EQ(quantize_fp8_group(zeros, with(deepseek_act_quant, ScaleRule::ceil_log2), codes), 0x1p-22f);
}

TEST(Fp8Group, PowerOfTwoScalesAreTheSmallestThatFit) {
  for (int k = -12; k <= 12; ++k) {
    std::vector<float> x(128);
    x[77] = std::ldexp(448.0f, k);
    x[3] = std::ldexp(-0.3f, k);
    std::vector<std::uint8_t> codes(128);
    EXPECT_EQ(quantize_fp8_group(x, with(sgl_group_quant_v1, ScaleRule::ceil_log2), codes), std::ldexp(1.0f, k));
    EXPECT_EQ(codes[77], 0x7E);
    EXPECT_EQ(codes[3], reference_code(-0.3f));
    EXPECT_EQ(quantize_fp8_group(x, with(sgl_group_quant_v2, ScaleRule::ceil_bits), codes), std::ldexp(1.0f, k));
    EXPECT_EQ(codes[77], 0x7E);
    x[77] = std::ldexp(449.0f, k);
    EXPECT_EQ(quantize_fp8_group(x, with(sgl_group_quant_v1, ScaleRule::ceil_log2), codes), std::ldexp(1.0f, k + 1));
    EXPECT_EQ(quantize_fp8_group(x, with(sgl_group_quant_v2, ScaleRule::ceil_bits), codes), std::ldexp(1.0f, k + 1));
    EXPECT_EQ(codes[77], reference_code(224.5f));
  }
}

TEST(Fp8Group, ScaleOfFullRangeGroupIsExactlyThePowerOfTwo) {
  for (int k = -12; k <= 12; ++k) {
    std::vector<float> x{std::ldexp(448.0f, k), std::ldexp(-17.0f, k)};
    std::vector<std::uint8_t> codes(2);
    EXPECT_EQ(quantize_fp8_group(x, sgl_group_quant_v1, codes), std::ldexp(1.0f, k));
    EXPECT_EQ(codes[0], 0x7E);
    EXPECT_EQ(codes[1], reference_code(-17.0f));
  }
}

TEST(Fp8Group, NanBecomesMinus448AndIsNoMaximum) {
  const std::vector<float> x{1.0f, f32_nan, -f32_nan, -0.5f};
  std::vector<std::uint8_t> codes(4);
  EXPECT_EQ(quantize_fp8_group(x, sgl_group_quant_v1, codes), 1.0f / 448.0f);
  EXPECT_EQ(codes[1], 0xFE);
  EXPECT_EQ(codes[2], 0xFE);
  EXPECT_EQ(codes[3], 0xF6);
}

TEST(Int8Group, TruncatesTowardZeroWithLimit127) {
  const std::vector<float> x{127.0f, -127.0f, 3.7f, -3.7f, f32_nan, 0.99f};
  std::vector<std::int8_t> codes(x.size());
  EXPECT_EQ(quantize_int8_group(x, sgl_group_quant_v1, codes), 1.0f);
  EXPECT_EQ(codes, (std::vector<std::int8_t>{127, -127, 3, -3, -128, 0}));
  EXPECT_EQ(quantize_int8_group(std::vector<float>(6), sgl_group_quant_v1, codes), 1e-10f / 127.0f);
}

TEST(Fp8Rows, GroupsDoNotCrossRowsAndTheLastMayBePartial) {
  constexpr std::int64_t rows = 3, columns = 300, groups = 3;
  const std::vector<float> x = normal_values(rows * columns, 5, 3.0f);
  std::vector<std::uint8_t> codes(x.size());
  std::vector<float> scales(rows * groups), back(x.size());
  quantize_fp8_rows(x, rows, columns, 128, deepseek_act_quant, codes, scales);
  dequantize_fp8_rows(codes, scales, rows, columns, 128, back);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t width = std::min<std::int64_t>(128, columns - g * 128);
      const auto group = std::span(x).subspan(static_cast<std::size_t>(r * columns + g * 128), static_cast<std::size_t>(width));
      const float scale = scales[static_cast<std::size_t>(r * groups + g)];
      EXPECT_EQ(scale, largest_of(group) / 448.0f);
      for (std::int64_t i = 0; i < width; ++i) {
        const auto at = static_cast<std::size_t>(r * columns + g * 128 + i);
        EXPECT_EQ(codes[at], reference_code(x[at] / scale));
        EXPECT_EQ(back[at], e4m3_to_f32(codes[at]) * scale);
        EXPECT_LE(std::fabs(back[at] - x[at]), std::max(std::fabs(x[at]) / 15.9f, scale * 0x1p-9f));
      }
    }
  }
}

TEST(Fp8Blocks, EdgeBlocksMayBePartialInBothDirections) {
  constexpr std::int64_t rows = 200, columns = 130;
  const std::vector<float> x = normal_values(rows * columns, 6);
  std::vector<std::uint8_t> codes(x.size());
  std::vector<float> scales(4), back(x.size());
  std::vector<std::uint16_t> back16(x.size());
  quantize_fp8_blocks(x, rows, columns, deepseek_act_quant, codes, scales);
  dequantize_fp8_blocks(codes, scales, rows, columns, back);
  dequantize_fp8_blocks_bf16(codes, scales, rows, columns, back16);
  float largest[4] = {};
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    float& block = largest[i / columns / 128 * 2 + i % columns / 128];
    block = std::max(block, std::fabs(x[static_cast<std::size_t>(i)]));
  }
  for (int b = 0; b < 4; ++b) EXPECT_EQ(scales[static_cast<std::size_t>(b)], largest[b] / 448.0f);
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const float scale = scales[static_cast<std::size_t>(i / columns / 128 * 2 + i % columns / 128)];
    ASSERT_EQ(codes[at], reference_code(x[at] / scale));
    ASSERT_EQ(back[at], e4m3_to_f32(codes[at]) * scale);
    ASSERT_EQ(back16[at], f32_to_bf16(back[at]));
  }
}

TEST(Fp8Blocks, ScaleCountsOfDeepSeekWeights) {
  std::vector<std::uint8_t> codes(576 * 256);
  std::vector<float> scales(5 * 2, 1.0f), x(codes.size());
  dequantize_fp8_blocks(codes, scales, 576, 256, x);
  scales.pop_back();
  EXPECT_THROW(dequantize_fp8_blocks(codes, scales, 576, 256, x), Error);
}

TEST(Fp8Blocks, RequantizedScalesArePowersOfTwoOfTheBf16Values) {
  constexpr std::int64_t rows = 200, columns = 130;
  const std::vector<float> x = normal_values(rows * columns, 8, 0.02f);
  std::vector<std::uint8_t> codes(x.size()), requantized(x.size());
  std::vector<float> scales(4), powers(4);
  quantize_fp8_blocks(x, rows, columns, deepseek_act_quant, codes, scales);
  requantize_weight_ue8m0(codes, scales, rows, columns, requantized, powers);
  std::vector<std::uint16_t> values(x.size());
  dequantize_fp8_blocks_bf16(codes, scales, rows, columns, values);
  float largest[4] = {};
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    float& block = largest[i / columns / 128 * 2 + i % columns / 128];
    block = std::max(block, std::fabs(bf16_to_f32(values[static_cast<std::size_t>(i)])));
  }
  for (int b = 0; b < 4; ++b) EXPECT_EQ(powers[static_cast<std::size_t>(b)], std::exp2(std::ceil(std::log2(largest[b] / 448.0f))));
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const float power = powers[static_cast<std::size_t>(i / columns / 128 * 2 + i % columns / 128)];
    ASSERT_EQ(requantized[static_cast<std::size_t>(i)], reference_code(bf16_to_f32(values[static_cast<std::size_t>(i)]) / power));
  }
  std::vector<std::uint8_t> in_place = codes;
  std::vector<float> in_place_scales = scales;
  requantize_weight_ue8m0(in_place, in_place_scales, rows, columns, in_place, in_place_scales);
  EXPECT_EQ(in_place, requantized);
  EXPECT_EQ(in_place_scales, powers);
}

TEST(Fp8Blocks, RequantizationRoundsToBf16First) {
  // 1.0 times the scale is just above the middle between two codes; in bf16 it is the middle, and goes to even.
  const std::vector<std::uint8_t> codes{0x38, 0x77};
  const std::vector<float> scales{1.0625f + 0x1p-12f};
  std::vector<std::uint8_t> out(2);
  std::vector<float> powers(1);
  requantize_weight_ue8m0(codes, scales, 1, 2, out, powers);
  EXPECT_EQ(powers[0], 1.0f);
  EXPECT_EQ(out[0], 0x38);
  EXPECT_EQ(reference_code(scales[0]), 0x39);
}

TEST(Fp8Blocks, RequantizingPowerOfTwoScalesOfFullBlocksChangesNothing) {
  std::vector<std::uint8_t> codes(128 * 128), out(codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i % 127 + (i / 127 % 2) * 128);
  std::vector<float> scales{0x1p-7f}, powers(1);
  requantize_weight_ue8m0(codes, scales, 128, 128, out, powers);
  EXPECT_EQ(out, codes);
  EXPECT_EQ(powers[0], 0x1p-7f);
}

TEST(Fp8Blocks, ZeroBlockRequantizesWithTheFloor) {
  std::vector<std::uint8_t> codes(16), out(16, 0xEE);
  std::vector<float> scales{1.0f}, powers(1);
  requantize_weight_ue8m0(codes, scales, 4, 4, out, powers);
  EXPECT_EQ(powers[0], 0x1p-22f);
  EXPECT_EQ(out, codes);
}

TEST(Fp8Rows, SizesThatDoNotFitThrow) {
  std::vector<float> x(256), scales(2);
  std::vector<std::uint8_t> codes(256);
  EXPECT_THROW(quantize_fp8_rows(x, 2, 129, 128, deepseek_act_quant, codes, scales), Error);
  EXPECT_THROW(quantize_fp8_rows(x, 1, 256, 0, deepseek_act_quant, codes, scales), Error);
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(quantize_fp8_rows(x, huge, 1, 128, deepseek_act_quant, codes, scales), Error);
  EXPECT_THROW(quantize_fp8_rows(x, 1, 256, huge, deepseek_act_quant, codes, scales), Error);
  EXPECT_THROW(quantize_fp8_blocks(x, std::int64_t{1} << 33, std::int64_t{1} << 33, deepseek_act_quant, codes, scales), Error);
  EXPECT_THROW(quantize_fp8_rows(x, -1, -256, 128, deepseek_act_quant, codes, scales), Error);
  EXPECT_THROW(quantize_fp8_group(x, deepseek_act_quant, std::span(codes).first(3)), Error);
}

}  // namespace
}  // namespace dodona::quant
