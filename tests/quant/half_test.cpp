#include "quant/half.h"

#include <gtest/gtest.h>

#include "tests/quant/reference.h"

namespace dodona::quant {
namespace {

using namespace test;

const ReferenceFormat& f16_format() {
  static const ReferenceFormat format(5, 10, 0x7BFF);
  return format;
}

/// bf16 with its exponents: the values up to the largest.
const ReferenceFormat& bf16_format() {
  static const ReferenceFormat format(8, 7, 0x7F7F);
  return format;
}

std::uint16_t reference(const ReferenceFormat& format, double x) {
  const unsigned code = format.nearest(std::fabs(x));  // overflow is the code of infinity in both formats
  return static_cast<std::uint16_t>((std::signbit(x) ? 0x8000u : 0u) | code);
}

TEST(Half, EveryF16CodeHasItsValue) {
  for (unsigned code = 0; code <= 0x7BFF; ++code) {
    EXPECT_EQ(f16_to_f32(static_cast<std::uint16_t>(code)), f16_format().values[code]) << code;
    const float negative = f16_to_f32(static_cast<std::uint16_t>(code | 0x8000));
    EXPECT_EQ(negative, -f16_format().values[code]) << code;
    EXPECT_TRUE(std::signbit(negative)) << code;
  }
  EXPECT_EQ(f16_to_f32(0x7C00), f32_infinity);
  EXPECT_EQ(f16_to_f32(0xFC00), -f32_infinity);
  for (unsigned code = 0x7C01; code <= 0x7FFF; ++code) EXPECT_TRUE(std::isnan(f16_to_f32(static_cast<std::uint16_t>(code))));
}

TEST(Half, EveryBf16CodeHasItsValue) {
  for (unsigned code = 0; code <= 0x7F7F; ++code) {
    EXPECT_EQ(bf16_to_f32(static_cast<std::uint16_t>(code)), bf16_format().values[code]) << code;
    EXPECT_EQ(bf16_to_f32(static_cast<std::uint16_t>(code | 0x8000)), -bf16_format().values[code]) << code;
  }
  EXPECT_EQ(bf16_to_f32(0x7F80), f32_infinity);
  EXPECT_TRUE(std::isnan(bf16_to_f32(0x7F81)));
}

TEST(Half, EveryCodeSurvivesTheWayThroughFloatAndDouble) {
  for (unsigned i = 0; i < 0x10000; ++i) {
    const auto code = static_cast<std::uint16_t>(i);
    const unsigned magnitude = i & 0x7FFF;
    if (magnitude <= 0x7C00) {
      EXPECT_EQ(f32_to_f16(f16_to_f32(code)), code);
      EXPECT_EQ(f64_to_f16(f16_to_f32(code)), code);
    }
    if (magnitude <= 0x7F80) {
      EXPECT_EQ(f32_to_bf16(bf16_to_f32(code)), code);
      EXPECT_EQ(f64_to_bf16(bf16_to_f32(code)), code);
    }
  }
}

TEST(Half, F16RoundsToNearestEvenAtEveryBoundary) {
  for_each_interesting(f16_format(), [](double x) {
    EXPECT_EQ(f64_to_f16(x), reference(f16_format(), x)) << x;
    const float as_float = static_cast<float>(x);
    EXPECT_EQ(f32_to_f16(as_float), reference(f16_format(), as_float)) << as_float;
  });
}

TEST(Half, Bf16RoundsToNearestEvenAtEveryBoundary) {
  for_each_interesting(bf16_format(), [](double x) {
    EXPECT_EQ(f64_to_bf16(x), reference(bf16_format(), x)) << x;
    const float as_float = static_cast<float>(x);
    if (std::isinf(as_float)) return;
    EXPECT_EQ(f32_to_bf16(as_float), reference(bf16_format(), as_float)) << as_float;
  });
}

TEST(Half, OverflowBeginsHalfwayAboveTheLargestValue) {
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(f32_to_f16(-65520.0f), 0xFC00);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7F7F7FFFu)), 0x7F7F);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7F7F8000u)), 0x7F80);
  EXPECT_EQ(f64_to_bf16(1e300), 0x7F80);
  EXPECT_EQ(f64_to_f16(-1e300), 0xFC00);
  EXPECT_EQ(f32_to_f16(f32_infinity), 0x7C00);
  EXPECT_EQ(f64_to_bf16(-f64_infinity), 0xFF80);
}

TEST(Half, EveryNanBecomes7FFF) {
  for (const std::uint32_t nan : {0x7F800001u, 0x7FC00000u, 0xFFC00000u, 0xFF800001u, 0x7FFFFFFFu}) {
    EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(nan)), 0x7FFF);
    EXPECT_EQ(f32_to_f16(std::bit_cast<float>(nan)), 0x7FFF);
  }
  EXPECT_EQ(f64_to_bf16(std::nan("")), 0x7FFF);
  EXPECT_EQ(f64_to_f16(-std::nan("")), 0x7FFF);
}

TEST(Half, DoubleIsRoundedOnceWhereTwoRoundingsWouldDiffer) {
  // Just above a tie: through fp32 the excess is lost first, and the tie then goes to even.
  const double bf16_case = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(f64_to_bf16(bf16_case), 0x3F81);
  EXPECT_EQ(f32_to_bf16(static_cast<float>(bf16_case)), 0x3F80);
  const double f16_case = 1.0 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(f64_to_f16(f16_case), 0x3C01);
  EXPECT_EQ(f32_to_f16(static_cast<float>(f16_case)), 0x3C00);
  // Just below a tie with an odd neighbour.
  const double below = 1.0 + 0x1p-7 + 0x1p-8 - 0x1p-40;
  EXPECT_EQ(f64_to_bf16(below), 0x3F81);
  EXPECT_EQ(f32_to_bf16(static_cast<float>(below)), 0x3F82);
  // In the denormal range.
  const double tiny = 0x1p-25 + 0x1p-60;
  EXPECT_EQ(f64_to_f16(tiny), 0x0001);
  EXPECT_EQ(f32_to_f16(static_cast<float>(tiny)), 0x0000);
}

TEST(Half, ConversionsAreConstantExpressions) {
  static_assert(f32_to_bf16(1.0f) == 0x3F80);
  static_assert(f16_to_f32(0x3C00) == 1.0f);
  static_assert(f64_to_f16(65504.0) == 0x7BFF);
}

}  // namespace
}  // namespace dodona::quant
