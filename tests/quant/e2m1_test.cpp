#include "quant/e2m1.h"

#include <gtest/gtest.h>

#include "quant/nibble.h"
#include "tests/quant/reference.h"

namespace dodona::quant {
namespace {

using namespace test;

const ReferenceFormat& format() {
  static const ReferenceFormat e2m1(2, 1, 7);
  return e2m1;
}

TEST(E2m1, EveryCodeHasItsValueAndComesBack) {
  const std::vector<float> values{0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (unsigned code = 0; code < 16; ++code) {
    const float value = e2m1_to_f32(code);
    EXPECT_EQ(std::fabs(value), values[code & 7]);
    EXPECT_EQ(std::fabs(value), format().values[code & 7]);
    EXPECT_EQ(std::signbit(value), code >= 8);
    EXPECT_EQ(to_e2m1(value), code);
    EXPECT_EQ(e2m1_doubled[code], 2 * value);
  }
}

TEST(E2m1, RoundsToNearestEvenAtEveryBoundary) {
  for_each_interesting(format(), [](double x) {
    const unsigned code = std::min(format().nearest(std::fabs(x)), 7u);
    EXPECT_EQ(to_e2m1(x), code | (std::signbit(x) ? 8u : 0u)) << x;
  });
}

TEST(E2m1, TiesGoToTheEvenCode) {
  const std::vector<std::pair<float, unsigned>> ties{{0.25f, 0}, {0.75f, 2}, {1.25f, 2}, {1.75f, 4}, {2.5f, 4}, {3.5f, 6}, {5.0f, 6}};
  for (const auto& [x, code] : ties) {
    EXPECT_EQ(to_e2m1(x), code) << x;
    EXPECT_EQ(to_e2m1(-x), code + 8) << x;
    const unsigned below = code % 2 == 0 && e2m1_to_f32(code) > x ? code - 1 : code;
    EXPECT_EQ(to_e2m1(down(x)), below) << x;
    EXPECT_EQ(to_e2m1(up(x)), e2m1_to_f32(code) > x ? code : code + 1) << x;
  }
}

TEST(E2m1, SaturatesAndKeepsTheSignOfZero) {
  for (const float x : {6.0f, 7.0f, 100.0f, 3e38f, f32_infinity}) {
    EXPECT_EQ(to_e2m1(x), 0x7);
    EXPECT_EQ(to_e2m1(-x), 0xF);
  }
  EXPECT_EQ(to_e2m1(0.0f), 0x0);
  EXPECT_EQ(to_e2m1(-0.0f), 0x8);
  EXPECT_EQ(to_e2m1(-0.1f), 0x8);
  EXPECT_EQ(to_e2m1(1e-40f), 0x0);
  EXPECT_EQ(to_e2m1(-1e-40f), 0x8);
}

TEST(E2m1, NanOfEitherSignBecomesPlusSix) {
  EXPECT_EQ(to_e2m1(f32_nan), 0x7);
  EXPECT_EQ(to_e2m1(-f32_nan), 0x7);
}

TEST(E2m1, MxfpUtilRoundsEveryTieTowardZeroAndCallsZeroNegative) {
  const std::vector<std::pair<float, unsigned>> ties{{0.25f, 0}, {0.75f, 1}, {1.25f, 2}, {1.75f, 3}, {2.5f, 4}, {3.5f, 5}, {5.0f, 6}};
  for (const auto& [x, code] : ties) {
    EXPECT_EQ(to_e2m1_mxfp4_util(x), code) << x;
    EXPECT_EQ(to_e2m1_mxfp4_util(-x), code + 8) << x;
    EXPECT_EQ(to_e2m1_mxfp4_util(up(x)), code + 1) << x;
  }
  EXPECT_EQ(to_e2m1_mxfp4_util(0.0f), 0x8);
  EXPECT_EQ(to_e2m1_mxfp4_util(-0.0f), 0x8);
  EXPECT_EQ(to_e2m1_mxfp4_util(f32_infinity), 0x7);
}

TEST(Nibble, EvenElementIsTheLowNibble) {
  const std::uint8_t packed[] = {0x21, 0x43};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(nibble(packed, i), i + 1);
  EXPECT_EQ(pack_nibbles(1, 2), 0x21);
  EXPECT_EQ(pack_nibbles(0x1F, 0x2F), 0xFF);
}

TEST(Nibble, ElementIOfAWordIsAtBit4I) {
  std::uint8_t packed[4] = {};
  for (unsigned i = 0; i < 8; ++i) set_nibble(packed, i, i + 3);
  const std::uint32_t word = packed[0] | packed[1] << 8 | packed[2] << 16 | static_cast<std::uint32_t>(packed[3]) << 24;
  for (unsigned i = 0; i < 8; ++i) EXPECT_EQ((word >> (4 * i)) & 0xF, i + 3);
}

TEST(Nibble, SettingOneLeavesItsNeighbourAlone) {
  std::uint8_t byte = 0xAB;
  set_nibble(&byte, 0, 0x5);
  EXPECT_EQ(byte, 0xA5);
  set_nibble(&byte, 1, 0x9);
  EXPECT_EQ(byte, 0x95);
}

TEST(Nibble, SignedNibblesAreTwosComplement) {
  for (int value = -8; value < 8; ++value) EXPECT_EQ(signed_nibble(static_cast<unsigned>(value)), value);
}

}  // namespace
}  // namespace dodona::quant
