#include "quant/hopper/fast_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace dodona::quant::hopper {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), smallest = 0x1p-126f;

std::uint32_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

#define EXPECT_BITS(value, expected) EXPECT_EQ(bits(value), bits(expected)) << (value) << " for " << (expected)

struct Digest {
  const char* name;
  float (*function)(float);
  std::uint64_t digest;  // FNV-1a over the result words of every 9973rd argument pattern
};

/// Taken when these functions gave the device's bits for every one of the 2^32 arguments.
constexpr Digest digests[] = {
    {"ex2", ex2, 0x6D2E1B2B60676BF6u},
    {"lg2", lg2, 0x4FCC98DF14983B90u},
    {"rcp", rcp, 0x7AA12D1C7E319814u},
    {"rsqrt", rsqrt, 0xA1E79594622723F8u},
    {"sqrt", sqrt, 0x5785DC45115E13EEu},
    {"tanh", tanh, 0xBE8C88C8C56DAB5Du},
    {"ex2_denormal", ex2_denormal, 0x5B41C8F714382606u},
    {"lg2_denormal", lg2_denormal, 0x6600218258FCD593u},
    {"rcp_denormal", rcp_denormal, 0xEA234332866982CFu},
    {"rsqrt_denormal", rsqrt_denormal, 0x8226BF082F932033u},
    {"sqrt_denormal", sqrt_denormal, 0x89DBE880ED730F4Au},
    {"expf", expf, 0xE77E14AA54868DBBu},
    {"logf", logf, 0x46CA0B349C25A4E2u},
    {"log10f", log10f, 0xF39F8BB8153C6EA5u},
    {"erff", erff, 0x54A2E55D5FE01F3Bu},
    {"sigmoid", sigmoid, 0x28216A124F54E7F3u},
};

TEST(HopperFastMath, DigestsAreThoseOfTheFunctionsCheckedOnTheDevice) {
  for (const Digest& d : digests) {
    std::uint64_t digest = 0xCBF29CE484222325u;
    for (std::uint64_t u = 0; u < std::uint64_t{1} << 32; u += 9973) {
      digest = (digest ^ bits(d.function(detail::float_of(static_cast<std::uint32_t>(u))))) * 0x100000001B3u;
    }
    EXPECT_EQ(digest, d.digest) << d.name;
  }
}

TEST(HopperFastMath, DenormalsBecomeZeroOfTheirSign) {
  EXPECT_BITS(ftz(0x1.fffffcp-127f), 0.0f);
  EXPECT_BITS(ftz(-0x1p-149f), -0.0f);
  EXPECT_BITS(ftz(smallest), smallest);
  EXPECT_BITS(ftz(-inf), -inf);
}

TEST(HopperFastMath, DenormalOperandsCountAsZero) {
  EXPECT_BITS(mul(0x1p-127f, 0x1p100f), 0.0f);
  EXPECT_BITS(add(0x1p-127f, 0x1p-126f), 0x1p-126f);
  EXPECT_BITS(fma(0x1p-127f, 0x1p100f, 1.0f), 1.0f);
  EXPECT_BITS(fma(1.0f, 0x1p-126f, -0x1p-127f), 0x1p-126f);
}

TEST(HopperFastMath, ProductsJustBelow2ToMinus126FlushAfterRoundingTo24Bits) {
  // 2^-126 * (1 - 2^-24) has 24 bits: it is below, although the denormal grid would round it up.
  EXPECT_EQ(0x1.fffffep-1f * smallest, smallest);
  EXPECT_BITS(mul(0x1.fffffep-1f, smallest), 0.0f);
  EXPECT_BITS(mul(-0x1.fffffep-1f, smallest), -0.0f);
  // 2^-126 * (1 - 2^-26) rounds up to 2^-126 in 24 bits.
  EXPECT_BITS(mul(1.0f - 0x1p-13f, (1.0f + 0x1p-13f) * smallest), smallest);
  // 2^-126 * (1 - 2^-25) is a tie, and goes to the even 2^-126: 2^25 - 1 = 31 * 1082401.
  EXPECT_BITS(mul(31.0f * 0x1p-5f, 1082401.0f * 0x1p-20f * smallest), smallest);
}

TEST(HopperFastMath, FmaFlushesByTheSameRule) {
  EXPECT_BITS(fma(0x1.fffffep-1f, smallest, 0.0f), 0.0f);
  EXPECT_BITS(fma(-0x1.fffffep-1f, smallest, 0.0f), -0.0f);
  EXPECT_BITS(fma(1.0f - 0x1p-13f, (1.0f + 0x1p-13f) * smallest, 0.0f), smallest);
  EXPECT_BITS(fma(-0x1p-75f, 0x1p-76f, smallest), smallest);     // 2^-126 - 2^-151: the tie
  EXPECT_BITS(fma(-0x1.000002p-75f, 0x1p-76f, smallest), 0.0f);  // below it
  EXPECT_BITS(fma(0x1.000002p-75f, 0x1p-76f, -smallest), -0.0f);
  EXPECT_BITS(fma(-0x1.fffffep-76f, 0x1p-76f, smallest), smallest);  // above it
}

TEST(HopperFastMath, FmaSeesWhatADoubleLosesNextToTheTie) {
  // Factors whose product exceeds 2^46 by less than double precision shows beside 2^-126.
  int found = 0;
  for (std::int64_t m = (1 << 23) + 1; m < 1 << 24 && found < 20; ++m) {
    const std::int64_t n = ((std::int64_t{1} << 46) + m - 1) / m, over = m * n - (std::int64_t{1} << 46);
    if (over > 1000 || n >= 1 << 24) continue;
    ++found;
    const float a = static_cast<float>(m) * 0x1p-98f, b = static_cast<float>(n) * 0x1p-99f;  // a*b = 2^-151 * (1 + over * 2^-46)
    EXPECT_BITS(fma(-a, b, smallest), over > 0 ? 0.0f : smallest) << m;
    EXPECT_BITS(fma(a, b, -smallest), over > 0 ? -0.0f : -smallest) << m;
    const float short_b = static_cast<float>(n - 1) * 0x1p-99f;
    EXPECT_BITS(fma(-a, short_b, smallest), smallest) << m;
  }
  EXPECT_EQ(found, 20);
}

/// Rounds to 24 bits, ties to even, as if the exponent had no lower limit, then flushes.
float flushed(long double exact) {
  int exponent;
  const long double fraction = std::frexp(exact, &exponent);
  const long double rounded = std::ldexp(std::nearbyint(std::ldexp(fraction, 24)), exponent - 24);
  return std::fabs(rounded) < 0x1p-126L ? std::copysign(0.0f, static_cast<float>(exact)) : static_cast<float>(rounded);
}

TEST(HopperFastMath, RandomProductsAround2ToMinus126FollowTheRule) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000000; ++i) {
    const int exponent = static_cast<int>(random() % 60) - 60;
    const float x = std::ldexp(1.0f + static_cast<float>(random() >> 9) * 0x1p-23f, exponent);
    float y = static_cast<float>(0x1p-126L / x);
    y = std::nextafter(y, random() % 2 == 0 ? 0.0f : 1.0f);
    ASSERT_EQ(bits(mul(x, -y)), bits(flushed(-static_cast<long double>(x) * y))) << x << " " << y;
  }
}

TEST(HopperFastMath, SumsInTheDenormalRangeFlush) {
  EXPECT_BITS(add(0x1.8p-126f, -smallest), 0.0f);
  EXPECT_BITS(add(smallest, -0x1.8p-126f), -0.0f);
  EXPECT_BITS(add(0x1.8p-125f, -smallest), 0x1p-125f);
  EXPECT_BITS(sub(1.0f, 1.0f), 0.0f);
}

TEST(HopperFastMath, NanResultsAreCanonical) {
  EXPECT_EQ(bits(mul(0.0f, inf)), 0x7FFFFFFFu);
  EXPECT_EQ(bits(mul(1e-40f, -inf)), 0x7FFFFFFFu);
  EXPECT_EQ(bits(add(inf, -inf)), 0x7FFFFFFFu);
  EXPECT_EQ(bits(fma(inf, 1.0f, -inf)), 0x7FFFFFFFu);
  EXPECT_EQ(bits(expf_denormal(-canonical_nan())), 0x7FFFFFFFu);
}

TEST(HopperFastMath, DivisionMultipliesWithTheApproximateReciprocal) {
  int different = 0;
  for (int i = 1; i <= 1000; ++i) {
    const float x = static_cast<float>(i), y = 1.0f + static_cast<float>(i) * 0x1.5p-9f;
    EXPECT_BITS(div(x, y), x * rcp(y));
    different += div(x, y) != x / y;
  }
  EXPECT_GT(different, 100);
  EXPECT_BITS(div(1e38f, 0x1.8p126f), 0.0f);  // the reciprocal is zero
}

TEST(HopperFastMath, ConstantsAreTheDevices) {
  EXPECT_EQ(bits(log2_e), 0x3FB8AA3Bu);
  EXPECT_EQ(bits(ln_2), 0x3F317218u);
  EXPECT_EQ(bits(log10_2), 0x3E9A209Bu);
}

TEST(HopperFastMath, ExpHasTheMeasuredErrors) {
  double largest = 0, largest_below_10 = 0;
  for (std::uint32_t u = 0; u < bits(80.0f); u += 97) {
    for (float x : {detail::float_of(u), -detail::float_of(u)}) {
      const double exact = std::exp(static_cast<double>(x)), error = std::fabs(expf(x) - exact) / exact;
      largest = std::max(largest, error);
      if (std::fabs(x) < 10) largest_below_10 = std::max(largest_below_10, error);
    }
  }
  EXPECT_NEAR(largest, 3.7e-6, 0.1e-6);
  EXPECT_NEAR(largest_below_10, 5e-7, 0.15e-7);
}

TEST(HopperFastMath, LogarithmsScaleLg2) {
  for (float x : {0.1f, 0.9f, 1.0f, 3.0f, 1e30f}) {
    EXPECT_BITS(logf(x), lg2(x) * ln_2);
    EXPECT_BITS(log10f(x), lg2(x) * log10_2);
    EXPECT_BITS(log2f(x), lg2(x));
  }
}

TEST(HopperFastMath, SigmoidSaturatesWhereTheSumPasses2To126) {
  EXPECT_BITS(sigmoid(0.0f), 0.5f);
  EXPECT_BITS(sigmoid(20.0f), 1.0f);
  EXPECT_GT(sigmoid(-87.0f), 0.0f);
  EXPECT_BITS(sigmoid(-88.0f), 0.0f);
}

TEST(HopperFastMath, ExpWithoutFlushingKeepsDenormals) {
  EXPECT_BITS(expf(-90.0f), 0.0f);
  EXPECT_GT(expf_denormal(-90.0f), 0.0f);
  EXPECT_BITS(expf_denormal(1.0f), expf(1.0f));
}

TEST(HopperFastMath, ErfIsWithinFourteenPlacesAndOdd) {
  for (std::uint32_t u = bits(0x1p-30f); u < bits(8.0f); u += 4999) {
    const float x = detail::float_of(u);
    const double exact = std::erf(static_cast<double>(x));
    ASSERT_NEAR(erff(x), exact, 8.5e-7 * exact) << x;
    ASSERT_EQ(bits(erff(-x)), bits(-erff(x))) << x;
  }
  EXPECT_BITS(erff(inf), 1.0f);
  EXPECT_BITS(erff(-0.0f), -0.0f);
}

}  // namespace
}  // namespace dodona::quant::hopper
