#include "quant/ue8m0.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/quant/reference.h"

namespace dodona::quant {
namespace {

using namespace test;

TEST(Ue8m0, BothDecodersAgreeExceptAt0And255) {
  for (int b = 1; b < 255; ++b) {
    EXPECT_EQ(ue8m0_value(static_cast<std::uint8_t>(b)), std::ldexp(1.0f, b - 127));
    EXPECT_EQ(ue8m0_bits_value(static_cast<std::uint8_t>(b)), std::ldexp(1.0f, b - 127));
  }
  EXPECT_EQ(ue8m0_value(0), 0x1p-127f);
  EXPECT_TRUE(std::isnan(ue8m0_value(255)));
  EXPECT_EQ(ue8m0_bits_value(0), 0.0f);
  EXPECT_EQ(ue8m0_bits_value(255), f32_infinity);
}

TEST(Ue8m0, InverseUndoesTheScaleExactly) {
  for (int b = 0; b < 255; ++b) {
    const auto byte = static_cast<std::uint8_t>(b);
    EXPECT_EQ(static_cast<double>(ue8m0_value(byte)) * ue8m0_inverse(byte), 1.0) << b;
  }
  EXPECT_TRUE(std::isnan(ue8m0_inverse(255)));
}

TEST(Ue8m0, EveryByteComesBackThroughEveryEncoder) {
  for (int b = 0; b < 255; ++b) {
    const auto byte = static_cast<std::uint8_t>(b);
    EXPECT_EQ(ue8m0_round_up(ue8m0_value(byte)), byte) << b;
    EXPECT_EQ(ue8m0_nearest(ue8m0_value(byte)), byte) << b;
    EXPECT_EQ(ue8m0_exponent_field(ue8m0_bits_value(byte)), byte) << b;
    EXPECT_EQ(ue8m0_ceil_bits(ue8m0_bits_value(byte)), byte) << b;
    EXPECT_EQ(ceil_exponent_by_log2(ue8m0_value(byte)), b - 127) << b;
  }
}

TEST(Ue8m0, RoundUpSpecials) {
  EXPECT_EQ(ue8m0_round_up(0.0f), 0x00);
  EXPECT_EQ(ue8m0_round_up(-0.0f), 0x00);
  EXPECT_EQ(ue8m0_round_up(f32_nan), 0xFF);
  EXPECT_EQ(ue8m0_round_up(-f32_nan), 0xFF);
  EXPECT_EQ(ue8m0_round_up(f32_infinity), 0xFE);
  EXPECT_EQ(ue8m0_round_up(-f32_infinity), 0xFE);
  EXPECT_EQ(ue8m0_round_up(-500.0f), 0x88);
  EXPECT_EQ(ue8m0_round_up(448.0f), 0x88);
  EXPECT_EQ(ue8m0_round_up(up(448.0f)), 0x88);
  EXPECT_EQ(ue8m0_round_up(449.0f), 0x88);
  EXPECT_EQ(ue8m0_round_up(512.0f), 0x88);
  EXPECT_EQ(ue8m0_round_up(up(512.0f)), 0x89);
  EXPECT_EQ(ue8m0_round_up(1e-10f), 0x5E);
  EXPECT_EQ(ue8m0_round_up(0x1p-10f), 0x75);
  EXPECT_EQ(ue8m0_round_up(0x1p-127f), 0x00);
  EXPECT_EQ(ue8m0_round_up(up(0x1p-127f)), 0x01);
  EXPECT_EQ(ue8m0_round_up(0x1p-126f), 0x01);
  EXPECT_EQ(ue8m0_round_up(std::numeric_limits<float>::denorm_min()), 0x00);
  EXPECT_EQ(ue8m0_round_up(std::numeric_limits<float>::max()), 0xFE);
}

TEST(Ue8m0, RoundUpGivesTheSmallestPowerNotBelow) {
  for (int b = 1; b < 254; ++b) {
    const float power = std::ldexp(1.0f, b - 127);
    EXPECT_EQ(ue8m0_round_up(power), b);
    EXPECT_EQ(ue8m0_round_up(up(power)), b + 1);
    EXPECT_EQ(ue8m0_round_up(1.5f * power), b + 1);
    if (b < 252) {
      EXPECT_EQ(ue8m0_round_up(6 * power), b + 3);
      EXPECT_EQ(ue8m0_round_up(6 * power * (1.0f / 6.0f)), b);
    }
    EXPECT_EQ(ceil_exponent_by_bits(power), b - 127);
    EXPECT_EQ(ceil_exponent_by_bits(up(power)), b - 126);
  }
}

/// ceil of the fp32 logarithm, by a logarithm of more than twice fp32's precision.
int reference_ceil_log2(float x) {
  return static_cast<int>(std::ceil(static_cast<float>(std::log2(static_cast<long double>(x)))));
}

TEST(Ue8m0, CeilLog2IsTheCeilingOfTheCorrectlyRoundedLogarithm) {
  int differs_from_bits = 0;
  for (int n = -149; n < 128; ++n) {
    const float power = std::ldexp(1.0f, n);
    const std::uint32_t base = bits_of(power);
    for (std::uint32_t j = 0; j < 80; ++j) {
      const float x = std::bit_cast<float>(base + j);
      if (std::isinf(x)) break;
      EXPECT_EQ(ceil_exponent_by_log2(x), reference_ceil_log2(x)) << n << " + " << j;
      if (x >= 0x1p-126f) differs_from_bits += ceil_exponent_by_log2(x) != ceil_exponent_by_bits(x);
      if (base > j) {
        const float below = std::bit_cast<float>(base - 1 - j);
        if (below > 0) {
          EXPECT_EQ(ceil_exponent_by_log2(below), reference_ceil_log2(below)) << n << " - " << j;
        }
      }
    }
  }
  EXPECT_GT(differs_from_bits, 1000);
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(1 + random() % 0x7F7FFFFFu));
    EXPECT_EQ(ceil_exponent_by_log2(x), reference_ceil_log2(x)) << x;
  }
}

TEST(Ue8m0, CeilLog2FallsBelowCeilBitsJustAboveAPowerOfTwo) {
  const float just_above = up(0x1p64f);
  EXPECT_EQ(ceil_exponent_by_log2(just_above), 64);
  EXPECT_EQ(ceil_exponent_by_bits(just_above), 65);
  EXPECT_EQ(ceil_exponent_by_log2(up(1.0f)), 1);
  EXPECT_EQ(ceil_exponent_by_log2(std::bit_cast<float>(bits_of(0x1p64f) + 22)), 64);
  EXPECT_EQ(ceil_exponent_by_log2(std::bit_cast<float>(bits_of(0x1p64f) + 23)), 65);
}

TEST(Ue8m0, CeilLog2ByteHasAFloorOf1em10) {
  EXPECT_EQ(ue8m0_ceil_log2(0.0f), 94);
  EXPECT_EQ(ue8m0_ceil_log2(1e-30f), 94);
  EXPECT_EQ(ue8m0_ceil_log2(f32_nan), 94);
  EXPECT_EQ(ue8m0_ceil_log2(1e-10f / 448), 94);
  EXPECT_EQ(ue8m0_ceil_log2(1.0f), 127);
  EXPECT_EQ(ue8m0_ceil_log2(f32_infinity), 255);
  EXPECT_EQ(ue8m0_ceil_log2(448.0f), 136);
}

TEST(Ue8m0, FastMathVersion1StoresOneTooMuchBelowOne) {
  EXPECT_EQ(ue8m0_v1_fast_math(-7), 121);
  EXPECT_EQ(ue8m0_v1_fast_math(-1), 127);
  EXPECT_EQ(ue8m0_v1_fast_math(0), 127);
  EXPECT_EQ(ue8m0_v1_fast_math(3), 130);
}

TEST(Ue8m0, ZeroGroupOfVersion2GivesByte85) {
  EXPECT_EQ(ue8m0_ceil_bits(1e-10f * (1.0f / 448.0f)), 85);
}

TEST(Ue8m0, NearestPrefersTheGreaterOfTwoEquallyNear) {
  EXPECT_EQ(ue8m0_nearest(1.5), 128);
  EXPECT_EQ(ue8m0_nearest(down(1.5)), 127);
  EXPECT_EQ(ue8m0_nearest(3.0), 129);
  EXPECT_EQ(ue8m0_nearest(-4.0), 129);
  EXPECT_EQ(ue8m0_nearest(0.0), 0);
  EXPECT_EQ(ue8m0_nearest(1e-300), 0);
  EXPECT_EQ(ue8m0_nearest(0x1.8p-127), 1);
  EXPECT_EQ(ue8m0_nearest(down(0x1.8p127)), 254);
  EXPECT_EQ(ue8m0_nearest(0x1.8p127), 255);
  EXPECT_EQ(ue8m0_nearest(f64_infinity), 255);
  EXPECT_EQ(ue8m0_nearest(std::nan("")), 255);
}

}  // namespace
}  // namespace dodona::quant
