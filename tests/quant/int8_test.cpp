#include "quant/int8.h"

#include <gtest/gtest.h>

#include "tests/quant/reference.h"

namespace dodona::quant {
namespace {

using namespace test;

TEST(Int8, GroupQuantizersTruncateTowardZero) {
  EXPECT_EQ(to_int8_truncate(-3.7f), -3);
  EXPECT_EQ(to_int8_truncate(3.7f), 3);
  EXPECT_EQ(to_int8_truncate(-0.9f), 0);
  EXPECT_EQ(to_int8_truncate(126.999f), 126);
  EXPECT_EQ(to_int8_truncate(127.9f), 127);
  EXPECT_EQ(to_int8_truncate(-128.9f), -128);
  EXPECT_EQ(to_int8_truncate(f32_infinity), 127);
  EXPECT_EQ(to_int8_truncate(-f32_infinity), -128);
  EXPECT_EQ(to_int8_truncate(f32_nan), -128);
}

TEST(Int8, PerTokenRoundsHalfAwayFromZero) {
  EXPECT_EQ(to_int8_half_away(2.5f), 3);
  EXPECT_EQ(to_int8_half_away(-2.5f), -3);
  EXPECT_EQ(to_int8_half_away(down(2.5f)), 2);
  EXPECT_EQ(to_int8_half_away(0.5f), 1);
  EXPECT_EQ(to_int8_half_away(down(0.5f)), 0);
  EXPECT_EQ(to_int8_half_away(127.49f), 127);
  EXPECT_EQ(to_int8_half_away(1e9f), 127);
  EXPECT_EQ(to_int8_half_away(-1e9f), -128);
  EXPECT_EQ(to_int8_half_away(f32_nan), 0);
}

TEST(Int8, TestHelpersRoundHalfToEven) {
  EXPECT_EQ(to_int8_nearest_even(2.5f), 2);
  EXPECT_EQ(to_int8_nearest_even(3.5f), 4);
  EXPECT_EQ(to_int8_nearest_even(-2.5f), -2);
  EXPECT_EQ(to_int8_nearest_even(up(2.5f)), 3);
  EXPECT_EQ(to_int8_nearest_even(f32_infinity), 127);
  EXPECT_EQ(to_int8_nearest_even(f32_nan), 0);
}

TEST(Int8, TheThreeRoundingsAgreeOnIntegersAndDifferAtEveryTie) {
  for (int i = -128; i <= 127; ++i) {
    const auto x = static_cast<float>(i);
    EXPECT_EQ(to_int8_truncate(x), i);
    EXPECT_EQ(to_int8_half_away(x), i);
    EXPECT_EQ(to_int8_nearest_even(x), i);
  }
  for (int i = 0; i < 127; ++i) {
    const float tie = static_cast<float>(i) + 0.5f;
    EXPECT_EQ(to_int8_truncate(tie), i);
    EXPECT_EQ(to_int8_half_away(tie), i + 1);
    EXPECT_EQ(to_int8_nearest_even(tie), i % 2 == 0 ? i : i + 1);
    EXPECT_EQ(to_int8_truncate(-tie), -i);
    EXPECT_EQ(to_int8_half_away(-tie), -i - 1);
    EXPECT_EQ(to_int8_nearest_even(-tie), i % 2 == 0 ? -i : -i - 1);
  }
}

}  // namespace
}  // namespace dodona::quant
