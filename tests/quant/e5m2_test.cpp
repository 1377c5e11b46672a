#include "quant/e5m2.h"

#include <gtest/gtest.h>

#include "tests/quant/reference.h"

namespace dodona::quant {
namespace {

using namespace test;

const ReferenceFormat& format() {
  static const ReferenceFormat e5m2(5, 2, 0x7B);
  return e5m2;
}

std::uint8_t with_sign(double x, unsigned code) {
  return static_cast<std::uint8_t>((std::signbit(x) ? 0x80u : 0u) | code);
}

TEST(E5m2, EveryCodeHasItsValueAndComesBack) {
  for (unsigned code = 0; code <= 0x7B; ++code) {
    for (const unsigned sign : {0x00u, 0x80u}) {
      const auto signed_code = static_cast<std::uint8_t>(code | sign);
      const float value = e5m2_to_f32(signed_code);
      EXPECT_EQ(std::fabs(value), format().values[code]);
      EXPECT_EQ(std::signbit(value), sign != 0);
      EXPECT_EQ(to_e5m2_satfinite(value), signed_code);
      EXPECT_EQ(to_e5m2_framework(value), signed_code);
    }
  }
  EXPECT_EQ(e5m2_to_f32(0x7C), f32_infinity);
  EXPECT_EQ(e5m2_to_f32(0xFC), -f32_infinity);
  for (const unsigned nan : {0x7Du, 0x7Eu, 0x7Fu, 0xFDu, 0xFEu, 0xFFu})
    EXPECT_TRUE(std::isnan(e5m2_to_f32(static_cast<std::uint8_t>(nan))));
}

TEST(E5m2, LandmarkCodes) {
  EXPECT_EQ(e5m2_to_f32(0x7B), 57344.0f);
  EXPECT_EQ(e5m2_to_f32(0x04), 0x1p-14f);
  EXPECT_EQ(e5m2_to_f32(0x01), 0x1p-16f);
  EXPECT_EQ(e5m2_to_f32(0x3C), 1.0f);
}

TEST(E5m2, RoundsToNearestEvenAtEveryBoundary) {
  for_each_interesting(format(), [](double x) {
    const unsigned code = format().nearest(std::fabs(x));
    EXPECT_EQ(to_e5m2_satfinite(x), with_sign(x, std::min(code, 0x7Bu))) << x;
    EXPECT_EQ(to_e5m2_framework(x), with_sign(x, code)) << x;
  });
}

TEST(E5m2, InfinityAndNan) {
  EXPECT_EQ(to_e5m2_satfinite(f32_infinity), 0x7B);
  EXPECT_EQ(to_e5m2_satfinite(-f32_infinity), 0xFB);
  EXPECT_EQ(to_e5m2_satfinite(-f32_nan), 0x7F);
  EXPECT_EQ(to_e5m2_framework(f32_infinity), 0x7C);
  EXPECT_EQ(to_e5m2_framework(-f32_infinity), 0xFC);
  EXPECT_EQ(to_e5m2_framework(61440.0f), 0x7C);
  EXPECT_EQ(to_e5m2_framework(down(61440.0f)), 0x7B);
  EXPECT_EQ(to_e5m2_framework(f32_nan), 0x7F);
  EXPECT_EQ(to_e5m2_framework(-f32_nan), 0xFF);
}

}  // namespace
}  // namespace dodona::quant
