#include "quant/element.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "tests/quant/reference.h"

namespace dodona::quant {
namespace {

using namespace test;

constexpr std::array all_types{DType::f64,     DType::f32,     DType::f16,     DType::bf16, DType::f8_e4m3,
                               DType::f8_e5m2, DType::f8_e8m0, DType::f4_e2m1, DType::i4,   DType::i8,
                               DType::u8,      DType::i16,     DType::i32,     DType::i64,  DType::boolean};

/// Value of a code as a test would have it: through a one-element buffer.
double value_of(DType type, std::uint64_t code) {
  std::uint64_t buffer = 0;
  store_bits(type, &buffer, 0, code);
  return load(type, &buffer, 0);
}

/// All finite values of a small type, ascending, -0 left out.
std::vector<double> all_values(DType type) {
  std::vector<double> values;
  for (std::uint64_t code = 0; code < (std::uint64_t{1} << bits(type)); ++code) {
    const double value = value_of(type, code);
    if (std::isfinite(value)) values.push_back(value);
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

constexpr std::array small_types{DType::f16,     DType::bf16, DType::f8_e4m3, DType::f8_e5m2, DType::f8_e8m0,
                                 DType::f4_e2m1, DType::i4,   DType::i8,      DType::u8,      DType::i16};

TEST(Element, EveryTypeStoresAndLoadsNeighboursWithoutTouchingThem) {
  for (const DType type : all_types) {
    std::array<std::uint8_t, 64> buffer{};
    for (int i = 0; i < 6; ++i) store(type, buffer.data(), i, 1.0);
    store(type, buffer.data(), 3, type == DType::boolean ? 0.0 : 2.0);
    for (int i = 0; i < 6; ++i) {
      const double expected = i != 3 ? 1.0 : (type == DType::boolean ? 0.0 : 2.0);
      EXPECT_EQ(load(type, buffer.data(), i), expected) << name(type) << " " << i;
    }
    for (std::int64_t byte = bytes_for(type, 6); byte < 64; ++byte) EXPECT_EQ(buffer[static_cast<std::size_t>(byte)], 0) << name(type);
  }
}

TEST(Element, BitsSurviveForEveryCodeOfSmallTypes) {
  for (const DType type : small_types) {
    for (std::uint64_t code = 0; code < (std::uint64_t{1} << bits(type)); ++code) {
      std::array<std::uint8_t, 8> buffer{};
      store_bits(type, buffer.data(), 1, code);
      EXPECT_EQ(load_bits(type, buffer.data(), 1), code) << name(type);
      const double value = load(type, buffer.data(), 1);
      if (std::isnan(value)) continue;
      store(type, buffer.data(), 1, value);
      EXPECT_EQ(load_bits(type, buffer.data(), 1), code) << name(type) << " " << value;
    }
  }
}

TEST(Element, RoundToGivesTheNearestValueOfSmallTypes) {
  for (const DType type : small_types) {
    if (type == DType::f8_e8m0) continue;  // its ties go up, see below
    const std::vector<double> values = all_values(type);
    for (std::size_t i = 0; i + 1 < values.size(); ++i) {
      const double a = values[i], b = values[i + 1], middle = a + (b - a) / 2;
      EXPECT_EQ(round_to(type, down(middle)), a) << name(type);
      EXPECT_EQ(round_to(type, up(middle)), b) << name(type);
      const double tie = round_to(type, middle);
      EXPECT_TRUE(tie == a || tie == b) << name(type);
      std::uint64_t code = 0;
      store(type, &code, 0, middle);
      EXPECT_EQ(code & 1, 0u) << name(type) << " " << middle;
    }
  }
}

TEST(Element, OverflowFollowsTheType) {
  EXPECT_EQ(round_to(DType::f32, 1e300), f64_infinity);
  EXPECT_EQ(round_to(DType::f16, -1e6), -f64_infinity);
  EXPECT_EQ(round_to(DType::bf16, 3.4e38), f64_infinity);
  EXPECT_EQ(round_to(DType::f8_e5m2, 1e6), f64_infinity);
  EXPECT_EQ(round_to(DType::f8_e4m3, 464.0), 448.0);
  EXPECT_TRUE(std::isnan(round_to(DType::f8_e4m3, 465.0)));
  EXPECT_EQ(round_to(DType::f4_e2m1, -1e9), -6.0);
  EXPECT_EQ(round_to(DType::f64, 1e308), 1e308);
  EXPECT_TRUE(std::isnan(round_to(DType::f8_e8m0, 1e300)));
  EXPECT_EQ(round_to(DType::f8_e8m0, 1.5), 2.0);
  EXPECT_EQ(round_to(DType::f8_e8m0, 0.0), 0x1p-127);
}

TEST(Element, IntegersRoundToEvenAndSaturate) {
  EXPECT_EQ(round_to(DType::i8, 2.5), 2.0);
  EXPECT_EQ(round_to(DType::i8, 3.5), 4.0);
  EXPECT_EQ(round_to(DType::i8, -2.5), -2.0);
  EXPECT_EQ(round_to(DType::i8, 1e9), 127.0);
  EXPECT_EQ(round_to(DType::i8, -1e9), -128.0);
  EXPECT_EQ(round_to(DType::u8, -3.0), 0.0);
  EXPECT_EQ(round_to(DType::u8, 255.5), 255.0);
  EXPECT_EQ(round_to(DType::i4, 7.6), 7.0);
  EXPECT_EQ(round_to(DType::i4, -f64_infinity), -8.0);
  EXPECT_EQ(round_to(DType::i16, 40000.0), 32767.0);
  EXPECT_EQ(round_to(DType::i32, 1e10), 2147483647.0);
  EXPECT_EQ(round_to(DType::i32, std::nan("")), 0.0);
  std::int64_t big = 0;
  store(DType::i64, &big, 0, 1e300);
  EXPECT_EQ(big, std::numeric_limits<std::int64_t>::max());
  store(DType::i64, &big, 0, -1e300);
  EXPECT_EQ(big, std::numeric_limits<std::int64_t>::min());
  store(DType::i64, &big, 0, 9007199254740992.0);
  EXPECT_EQ(big, 9007199254740992);
}

TEST(Element, BoolIsNotZero) {
  EXPECT_EQ(round_to(DType::boolean, 0.25), 1.0);
  EXPECT_EQ(round_to(DType::boolean, -0.0), 0.0);
  EXPECT_EQ(round_to(DType::boolean, std::nan("")), 1.0);
  EXPECT_EQ(value_of(DType::boolean, 7), 1.0);
}

TEST(Element, TensorElementsHonourStrides) {
  for (const DType type : {DType::f32, DType::bf16, DType::f8_e4m3, DType::i32}) {
    const Tensor tensor = make_strided(type, {3, 4}, {1, 5}, std::byte{0});
    for (int i = 0; i < 12; ++i) set(tensor, i, i);
    for (int i = 0; i < 12; ++i) EXPECT_EQ(get(tensor, i), i) << name(type);
    EXPECT_EQ(load(type, tensor.data(), 2 + 5 * 3), 11.0);
    EXPECT_EQ(get_bits(tensor, 11), load_bits(type, tensor.data(), 17));
    EXPECT_EQ(get(tensor.transpose(0, 1), 1), 4.0);
  }
}

TEST(Element, PackedTensorElementsShareBytes) {
  const Tensor codes(DType::f4_e2m1, {2, 6});
  for (int i = 0; i < 12; ++i) set_bits(codes, i, static_cast<std::uint64_t>(i));
  for (int i = 0; i < 12; ++i) EXPECT_EQ(get_bits(codes, i), static_cast<std::uint64_t>(i));
  EXPECT_EQ(codes.as<std::uint8_t>()[0], 0x10);
  EXPECT_EQ(codes.as<std::uint8_t>()[5], 0xBA);
  EXPECT_EQ(get(codes, 7), 6.0);
  EXPECT_EQ(get(codes, 9), -0.5);
  set(codes, 6, -3.0);
  EXPECT_EQ(get_bits(codes, 6), 0xDu);
  EXPECT_EQ(get_bits(codes, 7), 7u);
}

TEST(Element, BulkConversionsEqualElementwiseOnes) {
  std::mt19937_64 random(7);
  for (const DType type : all_types) {
    constexpr std::int64_t n = 257;
    std::vector<std::uint8_t> source(n * 8);
    for (auto& byte : source) byte = static_cast<std::uint8_t>(random());
    std::vector<float> floats(n);
    std::vector<double> doubles(n);
    to_f32(type, source.data(), floats.data(), n);
    to_f64(type, source.data(), doubles.data(), n);
    std::vector<double> values(n);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double expected = load(type, source.data(), i);
      EXPECT_EQ(std::isnan(doubles[at]), std::isnan(expected));
      if (!std::isnan(expected)) {
        EXPECT_EQ(bits_of(doubles[at]), bits_of(expected)) << name(type);
        if (type != DType::i64) {
          EXPECT_EQ(bits_of(floats[at]), bits_of(static_cast<float>(expected))) << name(type);
        }
      }
      values[at] = std::isnan(expected) ? 1.0 : expected;
    }
    std::vector<std::uint8_t> bulk(n * 8), single(n * 8);
    from_f64(type, values.data(), bulk.data(), n);
    for (std::int64_t i = 0; i < n; ++i) store(type, single.data(), i, values[static_cast<std::size_t>(i)]);
    EXPECT_EQ(bulk, single) << name(type);
    std::vector<float> narrow(values.begin(), values.end());
    std::fill(bulk.begin(), bulk.end(), std::uint8_t{0});
    from_f32(type, narrow.data(), bulk.data(), n);
    for (std::int64_t i = 0; i < n; ++i) store(type, single.data(), i, narrow[static_cast<std::size_t>(i)]);
    EXPECT_EQ(bulk, single) << name(type);
  }
}

TEST(Element, WideIntegersBecomeFloatsInOneRounding) {
  const std::int64_t value = (std::int64_t{1} << 60) + (std::int64_t{1} << 36) + 1;
  float as_float = 0;
  to_f32(DType::i64, &value, &as_float, 1);
  EXPECT_EQ(as_float, 0x1p60f + 0x1p37f);  // through double the 1 is lost, and the tie goes down to even
}

TEST(Element, UnalignedDataIsReadAndWritten) {
  std::array<std::uint8_t, 32> buffer{};
  store(DType::f64, buffer.data() + 1, 1, 1.25);
  EXPECT_EQ(load(DType::f64, buffer.data() + 1, 1), 1.25);
  std::array<float, 2> values{};
  to_f32(DType::f64, buffer.data() + 1, values.data(), 2);
  EXPECT_EQ(values[1], 1.25f);
}

TEST(Element, NextValuesStepThroughEverySmallType) {
  for (const DType type : small_types) {
    const std::vector<double> values = all_values(type);
    EXPECT_EQ(values.back(), max_finite(type)) << name(type);
    EXPECT_EQ(values.front(), min_finite(type)) << name(type);
    EXPECT_EQ(*std::upper_bound(values.begin(), values.end(), 0.0), min_subnormal(type)) << name(type);
    for (std::size_t i = 0; i + 1 < values.size(); ++i) {
      const double a = values[i], b = values[i + 1], between = a + (b - a) / 4, late = b - (b - a) / 4;
      for (const double x : {a, between, late}) EXPECT_EQ(next_up(type, x), b) << name(type) << " " << x;
      for (const double x : {b, between, late}) EXPECT_EQ(next_down(type, x), a) << name(type) << " " << x;
    }
    EXPECT_EQ(next_up(type, values.back()), f64_infinity) << name(type);
    EXPECT_EQ(next_down(type, values.front()), -f64_infinity) << name(type);
    EXPECT_EQ(next_down(type, f64_infinity), values.back()) << name(type);
    EXPECT_EQ(next_up(type, -f64_infinity), values.front()) << name(type);
    EXPECT_FALSE(std::signbit(next_up(type, -min_subnormal(type)))) << name(type);
  }
}

TEST(Element, NextValuesOfWideTypes) {
  EXPECT_EQ(next_up(DType::f32, 1.0), static_cast<double>(up(1.0f)));
  EXPECT_EQ(next_down(DType::f32, 1.0), static_cast<double>(down(1.0f)));
  EXPECT_EQ(next_up(DType::f32, 1.0 + 0x1p-40), static_cast<double>(up(1.0f)));
  EXPECT_EQ(next_up(DType::f32, 0.0), 0x1p-149);
  EXPECT_EQ(next_up(DType::f32, max_finite(DType::f32)), f64_infinity);
  EXPECT_EQ(next_up(DType::f64, 1.0), up(1.0));
  EXPECT_EQ(next_down(DType::i32, -5.0), -6.0);
  EXPECT_EQ(next_up(DType::i32, 2.5), 3.0);
  EXPECT_EQ(next_down(DType::i32, 2.5), 2.0);
  EXPECT_TRUE(std::isnan(next_up(DType::f16, std::nan(""))));
}

TEST(Element, UlpIsTheSpacingOfTheBinade) {
  for (const DType type : {DType::f16, DType::bf16, DType::f8_e4m3, DType::f8_e5m2, DType::f4_e2m1}) {
    std::vector<double> values = all_values(type);
    for (std::size_t i = 0; i + 1 < values.size(); ++i) {
      if (values[i] < 0) continue;
      EXPECT_EQ(ulp(type, values[i]), values[i + 1] - values[i]) << name(type) << " " << values[i];
      EXPECT_EQ(ulp(type, -values[i]), values[i + 1] - values[i]);
      EXPECT_EQ(ulp(type, (values[i] + values[i + 1]) / 2), values[i + 1] - values[i]);
    }
    const double top = values.back() - values[values.size() - 2];
    for (const double x : {values.back(), 1e60, f64_infinity}) EXPECT_EQ(ulp(type, x), top) << name(type);
    EXPECT_EQ(ulp(type, 0.0), min_subnormal(type));
    EXPECT_EQ(ulp(type, 1e-300), min_subnormal(type));
  }
  EXPECT_EQ(ulp(DType::f32, 1.0), 0x1p-23);
  EXPECT_EQ(ulp(DType::f64, 1.0), 0x1p-52);
  EXPECT_EQ(ulp(DType::f64, 0.0), 0x1p-1074);
  EXPECT_EQ(ulp(DType::f64, f64_infinity), 0x1p971);
  EXPECT_EQ(ulp(DType::f8_e8m0, 3.0), 2.0);
  EXPECT_EQ(ulp(DType::i8, 100.0), 1.0);
  EXPECT_TRUE(std::isnan(ulp(DType::f32, std::nan(""))));
}

TEST(Element, LimitsOfTheTypes) {
  EXPECT_EQ(max_finite(DType::f32), static_cast<double>(std::numeric_limits<float>::max()));
  EXPECT_EQ(max_finite(DType::f16), 65504.0);
  EXPECT_EQ(max_finite(DType::f8_e4m3), 448.0);
  EXPECT_EQ(max_finite(DType::f8_e5m2), 57344.0);
  EXPECT_EQ(max_finite(DType::f4_e2m1), 6.0);
  EXPECT_EQ(max_finite(DType::f8_e8m0), 0x1p127);
  EXPECT_EQ(max_finite(DType::boolean), 1.0);
  EXPECT_EQ(min_subnormal(DType::f16), 0x1p-24);
  EXPECT_EQ(min_subnormal(DType::bf16), 0x1p-133);
  EXPECT_EQ(min_subnormal(DType::f8_e4m3), 0x1p-9);
  EXPECT_EQ(min_subnormal(DType::f32), 0x1p-149);
}

}  // namespace
}  // namespace dodona::quant
