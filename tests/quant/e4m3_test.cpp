#include "quant/e4m3.h"

#include <gtest/gtest.h>

#include "quant/amax.h"
#include "tests/quant/reference.h"

namespace dodona::quant {
namespace {

using namespace test;

const ReferenceFormat& format() {
  static const ReferenceFormat e4m3(4, 3, 0x7E);
  return e4m3;
}

std::uint8_t with_sign(double x, unsigned code) {
  return static_cast<std::uint8_t>((std::signbit(x) ? 0x80u : 0u) | code);
}

TEST(E4m3, EveryCodeHasItsValueAndComesBack) {
  for (unsigned code = 0; code <= 0x7E; ++code) {
    for (const unsigned sign : {0x00u, 0x80u}) {
      const auto signed_code = static_cast<std::uint8_t>(code | sign);
      const float value = e4m3_to_f32(signed_code);
      EXPECT_EQ(std::fabs(value), format().values[code]);
      EXPECT_EQ(std::signbit(value), sign != 0);
      EXPECT_EQ(to_e4m3_satfinite(value), signed_code);
      EXPECT_EQ(to_e4m3_nosat(value), signed_code);
      EXPECT_EQ(to_e4m3_framework(value), signed_code);
    }
  }
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0x7F)));
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0xFF)));
}

TEST(E4m3, LandmarkCodes) {
  EXPECT_EQ(e4m3_to_f32(0x38), 1.0f);
  EXPECT_EQ(e4m3_to_f32(0x30), 0.5f);
  EXPECT_EQ(e4m3_to_f32(0x40), 2.0f);
  EXPECT_EQ(e4m3_to_f32(0x4C), 6.0f);
  EXPECT_EQ(e4m3_to_f32(0x77), 240.0f);
  EXPECT_EQ(e4m3_to_f32(0x78), 256.0f);
  EXPECT_EQ(e4m3_to_f32(0x7D), 416.0f);
  EXPECT_EQ(e4m3_to_f32(0x7E), 448.0f);
  EXPECT_EQ(e4m3_to_f32(0x08), 0.015625f);
  EXPECT_EQ(e4m3_to_f32(0x01), 0.001953125f);
}

TEST(E4m3, RoundsToNearestEvenAtEveryBoundary) {
  for_each_interesting(format(), [](double x) {
    const unsigned code = format().nearest(std::fabs(x));
    EXPECT_EQ(to_e4m3_satfinite(x), with_sign(x, std::min(code, 0x7Eu))) << x;
    EXPECT_EQ(to_e4m3_nosat(x), with_sign(x, code)) << x;
    EXPECT_EQ(to_e4m3_framework(x), with_sign(x, code)) << x;
  });
}

TEST(E4m3, UnderflowTiesGoToEven) {
  EXPECT_EQ(to_e4m3_satfinite(0x1p-10f), 0x00);
  EXPECT_EQ(to_e4m3_satfinite(up(0x1p-10f)), 0x01);
  EXPECT_EQ(to_e4m3_satfinite(-0x1p-10f), 0x80);
  EXPECT_EQ(to_e4m3_satfinite(3 * 0x1p-10f), 0x02);
  EXPECT_EQ(to_e4m3_satfinite(1e-40f), 0x00);
  EXPECT_EQ(to_e4m3_satfinite(-1e-40f), 0x80);
}

TEST(E4m3, TieBetween448And480GoesTo448) {
  EXPECT_EQ(to_e4m3_nosat(464.0f), 0x7E);
  EXPECT_EQ(to_e4m3_framework(464.0f), 0x7E);
  EXPECT_EQ(to_e4m3_framework(-464.0f), 0xFE);
}

TEST(E4m3, FrameworkCastOverflowsToNanWithSign) {
  EXPECT_EQ(to_e4m3_framework(up(464.0f)), 0x7F);
  EXPECT_EQ(to_e4m3_framework(465.0f), 0x7F);
  EXPECT_EQ(to_e4m3_framework(480.0f), 0x7F);
  EXPECT_EQ(to_e4m3_framework(-1e9f), 0xFF);
  EXPECT_EQ(to_e4m3_framework(f32_infinity), 0x7F);
  EXPECT_EQ(to_e4m3_framework(-f32_infinity), 0xFF);
  EXPECT_EQ(to_e4m3_nosat(480.0f), 0x7F);
  EXPECT_EQ(to_e4m3_nosat(-f32_infinity), 0xFF);
}

TEST(E4m3, SatfiniteNeverOverflows) {
  for (const float x : {448.0f, 464.0f, 480.0f, 1e9f, 3.4e38f, f32_infinity}) {
    EXPECT_EQ(to_e4m3_satfinite(x), 0x7E) << x;
    EXPECT_EQ(to_e4m3_satfinite(-x), 0xFE) << x;
  }
}

TEST(E4m3, NanLosesItsSignOnlyInHardwareConversions) {
  EXPECT_EQ(to_e4m3_satfinite(f32_nan), 0x7F);
  EXPECT_EQ(to_e4m3_satfinite(-f32_nan), 0x7F);
  EXPECT_EQ(to_e4m3_nosat(-f32_nan), 0x7F);
  EXPECT_EQ(to_e4m3_framework(f32_nan), 0x7F);
  EXPECT_EQ(to_e4m3_framework(-f32_nan), 0xFF);
}

TEST(E4m3, ClampOrderDecidesWhatNanBecomes) {
  EXPECT_EQ(to_e4m3_satfinite(clamp_high_first(f32_nan, -448.0f, 448.0f)), 0x7E);
  EXPECT_EQ(to_e4m3_satfinite(clamp_low_first(f32_nan, -448.0f, 448.0f)), 0xFE);
  for (const float x : {-500.0f, -448.0f, -1.0f, 0.0f, 3.0f, 448.0f, 500.0f}) {
    EXPECT_EQ(clamp_high_first(x, -448.0f, 448.0f), std::clamp(x, -448.0f, 448.0f));
    EXPECT_EQ(clamp_low_first(x, -448.0f, 448.0f), std::clamp(x, -448.0f, 448.0f));
  }
}

TEST(E4m3, DoubleIsRoundedOnceWhereTwoRoundingsWouldDiffer) {
  const double x = 1.0 + 0x1p-4 + 0x1p-40;
  EXPECT_EQ(to_e4m3_satfinite(x), 0x39);
  EXPECT_EQ(to_e4m3_satfinite(static_cast<float>(x)), 0x38);
}

TEST(Amax, IgnoresNanUnlessAllAreNan) {
  const std::vector<float> some{1.0f, f32_nan, -3.0f};
  const std::vector<float> all{f32_nan, -f32_nan};
  EXPECT_EQ(amax(some), 3.0f);
  EXPECT_EQ(amax(all), 0.0f);
  EXPECT_EQ(amax_or_nan(some), 3.0f);
  EXPECT_TRUE(std::isnan(amax_or_nan(all)));
  EXPECT_EQ(amax_or_nan({}), 0.0f);
  EXPECT_EQ(amax(std::vector<float>{-f32_infinity, 2.0f}), f32_infinity);
}

}  // namespace
}  // namespace dodona::quant
