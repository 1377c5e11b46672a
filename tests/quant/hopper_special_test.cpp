#include "quant/hopper/special.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "io/sha256.h"

namespace dodona::quant::hopper {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr std::uint32_t one_bits = 0x3F800000u, mantissas = 1u << 23;

std::uint32_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
float from_bits(std::uint32_t u) {
  return std::bit_cast<float>(u);
}

#define EXPECT_BITS(value, expected) EXPECT_EQ(bits(value), bits(expected)) << (value) << " for " << (expected)

TEST(HopperSpecial, SquareLosesEachBitProductBelowColumn19) {
  for (std::uint32_t j = 0; j < 1u << 17; ++j) {
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < 17; ++i) {
      if ((j >> i & 1) == 0) continue;
      if (2 * i >= 19) sum += std::uint64_t{1} << (2 * i - 19);
      for (unsigned k = i + 1; k < 17; ++k) sum += (j >> k & 1) != 0 && i + k + 1 >= 19 ? std::uint64_t{1} << (i + k + 1 - 19) : 0;
    }
    ASSERT_EQ(detail::truncated_square(j), sum) << j;
  }
}

// --- Counts of differences to the correctly rounded result, as measured on the device -------------------------------------------

struct Deltas {
  std::int64_t below2 = 0, below1 = 0, equal = 0, above1 = 0, other = 0;
  void add(float got, float correct) {
    switch (static_cast<std::int32_t>(bits(got) - bits(correct))) {
      case -2: ++below2; break;
      case -1: ++below1; break;
      case 0: ++equal; break;
      case 1: ++above1; break;
      default: ++other;
    }
  }
};

TEST(HopperSpecial, RcpDiffersFromCorrectRoundingAsOftenAsTheDevice) {
  Deltas deltas;
  for (std::uint32_t man = 0; man < mantissas; ++man) {
    const float x = from_bits(one_bits | man);
    deltas.add(rcp(x), 1.0f / x);
  }
  EXPECT_EQ(deltas.below1, 374723);
  EXPECT_EQ(deltas.equal, 7280086);
  EXPECT_EQ(deltas.above1, 733799);
  EXPECT_EQ(deltas.other + deltas.below2, 0);
}

Deltas rsqrt_deltas(std::uint32_t first) {
  Deltas deltas;
  for (std::uint32_t man = 0; man < mantissas; ++man) {
    const float x = from_bits(first | man);
    deltas.add(rsqrt(x), static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))));
  }
  return deltas;
}

TEST(HopperSpecial, RsqrtFrom1To2DiffersFromCorrectRoundingAsOftenAsTheDevice) {
  const Deltas deltas = rsqrt_deltas(one_bits);
  EXPECT_EQ(deltas.below2, 8);
  EXPECT_EQ(deltas.below1, 1265297);
  EXPECT_EQ(deltas.above1, 618140);
  EXPECT_EQ(deltas.other, 0);
}

TEST(HopperSpecial, RsqrtFrom2To4DiffersFromCorrectRoundingAsOftenAsTheDevice) {
  const Deltas deltas = rsqrt_deltas(one_bits + mantissas);
  EXPECT_EQ(deltas.below2, 0);
  EXPECT_EQ(deltas.below1, 1079094);
  EXPECT_EQ(deltas.above1, 671591);
  EXPECT_EQ(deltas.other, 0);
}

TEST(HopperSpecial, RcpEqualsTheRecordedTable) {
  // In 2 bits for each mantissa of [1, 2): the device's result minus the correctly rounded one, plus 1. Of the table, 2 MB, only the digest
  // is here.
  std::vector<std::byte> table(mantissas / 4);
  for (std::uint32_t man = 0; man < mantissas; ++man) {
    const float x = from_bits(one_bits | man);
    const std::uint32_t code = bits(rcp(x)) - bits(1.0f / x) + 1;
    ASSERT_LE(code, 2u) << man;
    table[man >> 2] |= static_cast<std::byte>(code << (2 * (man & 3)));
  }
  EXPECT_EQ(io::to_hex(io::sha256(table)), "bbda0d685ab5a66767c2c3881a67dff147e1f5a2c766db1f6dd5b63fecedcf2c");
}

TEST(HopperSpecial, CoefficientsAreTheRecordedOnes) {
  const auto recorded = io::SafetensorsFile::open(DODONA_SOURCE_DIR "/tests/golden/_hardware/special_functions.safetensors");
  const auto expect_rows = [&](const char* name, std::span<const Quadratic> segments) {
    const Tensor rows = recorded.tensor(std::string("out.") + name);
    ASSERT_EQ(rows.shape(), (Dims{static_cast<std::int64_t>(segments.size()), 3})) << name;
    const auto* value = rows.as<const std::int64_t>();
    for (const Quadratic& segment : segments) {
      for (const std::int64_t mine : {segment.c0, std::int64_t{segment.c1}, std::int64_t{segment.c2}})
        EXPECT_EQ(mine, *value++) << name << " segment " << &segment - segments.data();
    }
  };
  expect_rows("ex2", ex2_segments);
  expect_rows("lg2", lg2_segments);
  expect_rows("rcp", rcp_segments);
  expect_rows("rsqrt", rsqrt_segments);
  expect_rows("sqrt", sqrt_segments);
  expect_rows("tanh", tanh_segments);
}

// --- Errors, as measured on the device ------------------------------------------------------------------------------------------

struct Errors {
  double largest_relative = 0, largest_absolute = 0;
  double below2 = 0, below1 = 0, above1 = 0;  // shares of the arguments
};

template <class Approximate, class Exact>
Errors errors_between(float from, float to, Approximate approximate, Exact exact, std::uint32_t stride = 1) {
  Errors errors;
  std::int64_t count = 0;
  for (std::uint32_t u = bits(from); u < bits(to); u += stride, ++count) {
    const float x = from_bits(u), got = approximate(x);
    const double correct = exact(static_cast<double>(x));
    const std::int32_t delta = static_cast<std::int32_t>(bits(got) - bits(static_cast<float>(correct)));
    errors.below2 += delta == -2;
    errors.below1 += delta == -1;
    errors.above1 += delta == 1;
    errors.largest_absolute = std::max(errors.largest_absolute, std::fabs(got - correct));
    errors.largest_relative = std::max(errors.largest_relative, std::fabs((got - correct) / correct));
  }
  errors.below2 /= static_cast<double>(count);
  errors.below1 /= static_cast<double>(count);
  errors.above1 /= static_cast<double>(count);
  return errors;
}

TEST(HopperSpecial, Ex2IsOffByOnePlaceIn31PercentFromOneHalfTo1) {
  const Errors errors = errors_between(
      0.5f, 1.0f, [](float x) { return ex2(x); }, [](double x) { return std::exp2(x); });
  EXPECT_NEAR(errors.below1 + errors.above1, 0.31, 0.005);
  EXPECT_NEAR(errors.largest_relative, 1.15e-7, 0.005e-7);
}

TEST(HopperSpecial, Ex2IsOnePlaceLowIn60PercentFromMinus8ToMinus4) {
  const Errors errors = errors_between(
      4.0f, 8.0f, [](float x) { return ex2(-x); }, [](double x) { return std::exp2(-x); });
  EXPECT_NEAR(errors.below1, 0.60, 0.005);
  EXPECT_NEAR(errors.below2, 0.01, 0.005);
  EXPECT_NEAR(errors.largest_relative, 1.4e-7, 0.05e-7);
}

TEST(HopperSpecial, Lg2IsOnePlaceLowIn25PercentFrom8To16) {
  const Errors errors = errors_between(
      8.0f, 16.0f, [](float x) { return lg2(x); }, [](double x) { return std::log2(x); });
  EXPECT_NEAR(errors.below1, 0.25, 0.005);
  EXPECT_NEAR(errors.largest_relative, 9.1e-8, 0.05e-8);
}

TEST(HopperSpecial, Lg2From1To2IsWithinAnAbsoluteErrorOf16e8) {
  const Errors errors = errors_between(
      1.0f, 2.0f, [](float x) { return lg2(x); }, [](double x) { return std::log2(x); });
  EXPECT_NEAR(errors.largest_absolute, 1.6e-7, 0.05e-7);
}

TEST(HopperSpecial, SqrtIsNotCorrectlyRoundedIn17Percent) {
  const Errors errors = errors_between(
      1.0f, 4.0f, [](float x) { return sqrt(x); }, [](double x) { return std::sqrt(x); });
  EXPECT_NEAR(errors.below1 + errors.above1, 0.17, 0.005);
  EXPECT_LT(errors.largest_relative, 1.1e-7);
}

TEST(HopperSpecial, TanhHasTheMeasuredErrorsPerBinade) {
  const struct {
    int exponent;
    double error;
  } measured[] = {{-7, 6.6e-6}, {-3, 3.8e-6}, {-1, 1.1e-5}, {0, 9.8e-6}, {1, 2.7e-6}};
  for (const auto& [exponent, error] : measured) {
    const float from = std::ldexp(1.0f, exponent);
    const Errors errors = errors_between(
        from, 2 * from, [](float x) { return tanh(x); }, [](double x) { return std::tanh(x); }, 3);
    EXPECT_NEAR(errors.largest_relative, error, 0.02 * error) << exponent;
  }
}

// --- Rules ----------------------------------------------------------------------------------------------------------------------

TEST(HopperSpecial, EveryNanResultIsTheCanonicalOne) {
  const float payload = from_bits(0xFFC12345u);
  for (float got : {ex2(payload),
                    lg2(payload),
                    rcp(payload),
                    rsqrt(payload),
                    sqrt(payload),
                    tanh(payload),
                    lg2(-1.0f),
                    rsqrt(-1.0f),
                    sqrt(-1.0f),
                    lg2(-inf),
                    rsqrt(-inf),
                    sqrt(-inf),
                    ex2_denormal(payload),
                    lg2_denormal(payload),
                    rcp_denormal(payload),
                    rsqrt_denormal(payload),
                    sqrt_denormal(payload),
                    lg2_denormal(-1e-40f),
                    rsqrt_denormal(-1e-40f),
                    sqrt_denormal(-1e-40f)}) {
    EXPECT_EQ(bits(got), 0x7FFFFFFFu);
  }
}

TEST(HopperSpecial, Ex2OfWholeNumbersIsExact) {
  for (int n = -126; n < 128; ++n) EXPECT_BITS(ex2(static_cast<float>(n)), std::ldexp(1.0f, n));
  EXPECT_BITS(ex2(0.0f), 1.0f);
  EXPECT_BITS(ex2(-0.0f), 1.0f);
}

TEST(HopperSpecial, Ex2CutsArgumentsBelow2ToMinus23) {
  EXPECT_BITS(ex2(0x1.fffffep-24f), 1.0f);
  EXPECT_BITS(ex2(-0x1.fffffep-24f), 1.0f);
  EXPECT_BITS(ex2(0x1.000001p-1f), ex2(0x1p-1f));  // the last bit of 1/2 + 2^-25 lies below 2^-23
  EXPECT_NE(bits(ex2(-0x1p-23f)), bits(1.0f));
}

TEST(HopperSpecial, Ex2ComplementsNegativeFractions) {
  // -2^-23 is read as -1 + (2^23 - 2) / 2^23, not as -1 + (2^23 - 1) / 2^23.
  EXPECT_BITS(ex2(-0x1p-23f), 0.5f * ex2(1.0f - 0x1p-22f));
  EXPECT_NE(bits(ex2(-0x1p-23f)), bits(0.5f * ex2(1.0f - 0x1p-23f)));
}

TEST(HopperSpecial, Ex2LeavesTheRangeAtMinus126And128) {
  EXPECT_BITS(ex2(-126.0f), 0x1p-126f);
  EXPECT_BITS(ex2(std::nextafter(-126.0f, -inf)), 0.0f);
  EXPECT_BITS(ex2(128.0f), inf);
  EXPECT_LT(ex2(std::nextafter(128.0f, 0.0f)), inf);
  EXPECT_BITS(ex2(inf), inf);
  EXPECT_BITS(ex2(-inf), 0.0f);
  EXPECT_BITS(ex2(3e38f), inf);
  EXPECT_BITS(ex2(-3e38f), 0.0f);
}

TEST(HopperSpecial, Lg2OfPowersFallsJustShortBelow1) {
  EXPECT_BITS(lg2(1.0f), 0.0f);
  EXPECT_BITS(lg2(0.25f), -0x1.fffffep+0f);  // -1.9999999
  for (int n = 1; n <= 127; ++n) EXPECT_BITS(lg2(std::ldexp(1.0f, n)), static_cast<float>(n));
}

TEST(HopperSpecial, Lg2OfZerosAndDenormalsOfEitherSignIsMinusInfinity) {
  for (float x : {0.0f, -0.0f, 1e-40f, -1e-40f}) EXPECT_BITS(lg2(x), -inf);
  EXPECT_BITS(lg2(inf), inf);
}

TEST(HopperSpecial, RcpKeepsTheSignAndFlushesAbove2To126) {
  EXPECT_BITS(rcp(0x1p126f), 0x1p-126f);
  EXPECT_BITS(rcp(0x1.000002p126f), 0.0f);
  EXPECT_BITS(rcp(-0x1.8p127f), -0.0f);
  EXPECT_BITS(rcp(0.0f), inf);
  EXPECT_BITS(rcp(-1e-40f), -inf);
  EXPECT_BITS(rcp(inf), 0.0f);
  EXPECT_BITS(rcp(-inf), -0.0f);
  EXPECT_BITS(rcp(-4.0f), -0.25f);
}

TEST(HopperSpecial, ReciprocalsOfTheLargestCodesAreCorrectlyRounded) {
  for (float largest : {448.0f, 57344.0f, 127.0f, 6.0f}) EXPECT_BITS(rcp(largest), 1.0f / largest);
}

TEST(HopperSpecial, RootsOfZerosKeepTheSign) {
  EXPECT_BITS(rsqrt(0.0f), inf);
  EXPECT_BITS(rsqrt(-0.0f), -inf);
  EXPECT_BITS(rsqrt(-1e-40f), -inf);
  EXPECT_BITS(rsqrt(inf), 0.0f);
  EXPECT_BITS(sqrt(-0.0f), -0.0f);
  EXPECT_BITS(sqrt(-1e-40f), -0.0f);
  EXPECT_BITS(sqrt(inf), inf);
  for (int h = -63; h <= 63; ++h) {
    EXPECT_BITS(rsqrt(std::ldexp(1.0f, 2 * h)), std::ldexp(1.0f, -h));
    EXPECT_BITS(sqrt(std::ldexp(1.0f, 2 * h)), std::ldexp(1.0f, h));
  }
}

TEST(HopperSpecial, EveryBinadeOfAParityHasTheSameDigits) {
  for (std::uint32_t man = 0; man < mantissas; man += 100003) {
    const float x = from_bits(one_bits | man);
    for (int h = -31; h <= 31; ++h) {
      EXPECT_BITS(rcp(std::ldexp(x, 2 * h)), std::ldexp(rcp(x), -2 * h));
      EXPECT_BITS(rsqrt(std::ldexp(x, 2 * h)), std::ldexp(rsqrt(x), -h));
      EXPECT_BITS(sqrt(std::ldexp(x, 2 * h)), std::ldexp(sqrt(x), h));
    }
  }
}

TEST(HopperSpecial, TanhIsTheArgumentBelow2ToMinus8AndOneFrom8) {
  for (float x : {0.0f, -0.0f, 1e-40f, -1e-40f, 0x1.fffffep-9f, -0x1.fffffep-9f}) EXPECT_BITS(tanh(x), x);
  EXPECT_NE(bits(tanh(0x1.8p-8f)), bits(0x1.8p-8f));
  EXPECT_LT(tanh(7.0f), 1.0f);
  EXPECT_BITS(tanh(8.0f), 1.0f);
  EXPECT_BITS(tanh(-inf), -1.0f);
}

TEST(HopperSpecial, TanhIsOdd) {
  for (std::uint32_t u = bits(0x1p-10f); u < bits(16.0f); u += 10007) EXPECT_BITS(tanh(-from_bits(u)), -tanh(from_bits(u)));
}

TEST(HopperSpecial, UnflushedFormsKeepDenormals) {
  EXPECT_BITS(ex2_denormal(-149.0f), 0x1p-149f);
  EXPECT_BITS(ex2_denormal(-150.5f), 0.0f);
  EXPECT_BITS(ex2_denormal(-148.0f), 0x1p-148f);
  EXPECT_BITS(ex2_denormal(-127.0f), ex2(-63.5f) * ex2(-63.5f));
  EXPECT_BITS(ex2_denormal(-126.0f), 0x1p-126f);
  EXPECT_BITS(ex2_denormal(-inf), 0.0f);
  EXPECT_BITS(lg2_denormal(0x1p-140f), lg2(0x1p-116f) - 24.0f);
  EXPECT_BITS(lg2_denormal(-0.0f), -inf);
  EXPECT_BITS(rcp_denormal(0x1p-127f), 0x1p127f);
  EXPECT_BITS(rcp_denormal(0x1p-149f), inf);
  EXPECT_BITS(rcp_denormal(-0x1p127f), -0x1p-127f);
  EXPECT_BITS(rcp_denormal(-inf), -0.0f);
  EXPECT_BITS(rsqrt_denormal(0x1p-148f), 0x1p74f);
  EXPECT_BITS(rsqrt_denormal(-0.0f), -inf);
  EXPECT_BITS(sqrt_denormal(0x1p-148f), 0x1p-74f);
  EXPECT_BITS(sqrt_denormal(-0.0f), -0.0f);
}

}  // namespace
}  // namespace dodona::quant::hopper
