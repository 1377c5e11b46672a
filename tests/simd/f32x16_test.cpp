// What the operations of simd/f32x16.h mean, against plain scalar code.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tests/simd/probe.h"

namespace dodona::simd_tests {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();
using Floats = std::vector<float>;

TEST(F32x16, FmaRoundsOnce) {
  // (1 + 2^-23)^2 - (1 + 2^-22) = 2^-46, which vanishes when the product is rounded first.
  const Floats a(16, 1.0f + 0x1p-23f), c(16, -(1.0f + 0x1p-22f));
  for (const Isa isa : available_isas()) {
    EXPECT_EQ(map<float>(ProbeOp::fma, isa, a, a, c), Floats(16, 0x1p-46f)) << name(isa);
    EXPECT_EQ(map<float>(ProbeOp::fms, isa, a, a, Floats(16, 1.0f + 0x1p-22f)), Floats(16, 0x1p-46f)) << name(isa);
    EXPECT_EQ(map<float>(ProbeOp::fnma, isa, a, a, Floats(16, 1.0f + 0x1p-22f)), Floats(16, -0x1p-46f)) << name(isa);
  }
}

TEST(F32x16, ArithmeticIsTheLanguages) {
  const std::size_t n = 4096;
  const auto wa = samples::words(n, 0), wb = samples::words(n, 1), wc = samples::words(n, 2);
  const struct {
    ProbeOp op;
    float (*scalar)(float, float, float);
  } cases[] = {
      {ProbeOp::add, [](float a, float b, float) { return a + b; }},
      {ProbeOp::sub, [](float a, float b, float) { return a - b; }},
      {ProbeOp::mul, [](float a, float b, float) { return a * b; }},
      {ProbeOp::div, [](float a, float b, float) { return a / b; }},
      {ProbeOp::fma, [](float a, float b, float c) { return std::fma(a, b, c); }},
      {ProbeOp::fnma, [](float a, float b, float c) { return std::fma(-a, b, c); }},
      {ProbeOp::fms, [](float a, float b, float c) { return std::fma(a, b, -c); }},
      {ProbeOp::min, [](float a, float b, float) { return a < b ? a : b; }},
      {ProbeOp::max, [](float a, float b, float) { return a > b ? a : b; }},
      {ProbeOp::select, [](float a, float b, float c) { return a < b ? c : b; }},
      {ProbeOp::sqrt, [](float a, float, float) { return std::sqrt(a); }},
      {ProbeOp::floor, [](float a, float, float) { return std::floor(a); }},
      {ProbeOp::round_even, [](float a, float, float) { return std::nearbyint(a); }},
      {ProbeOp::abs, [](float a, float, float) { return from_bits(bits(a) & 0x7FFFFFFFu); }},
      {ProbeOp::negate, [](float a, float, float) { return from_bits(bits(a) ^ 0x80000000u); }},
      {ProbeOp::copysign, [](float a, float b, float) { return from_bits((bits(a) & 0x7FFFFFFFu) | (bits(b) & 0x80000000u)); }},
      {ProbeOp::canonical_nan, [](float a, float, float) { return std::isnan(a) ? from_bits(0x7FFFFFFFu) : a; }},
      {ProbeOp::rsqrt, [](float a, float, float) { return 1.0f / std::sqrt(a); }},
  };
  for (const auto& [op, scalar] : cases) {
    std::vector<std::uint32_t> expected(n);
    for (std::size_t i = 0; i < n; ++i) expected[i] = bits(scalar(from_bits(wa[i]), from_bits(wb[i]), from_bits(wc[i])));
    samples::settle_nans(info_of(op), expected.data(), n);
    for (const Isa isa : available_isas()) {
      const auto got = map<std::uint32_t>(op, isa, wa, wb, wc);
      for (std::size_t i = 0; i < n; ++i)
        ASSERT_EQ(got[i], expected[i]) << info_of(op).name << " on " << name(isa) << " of " << std::hex << wa[i] << ' ' << wb[i] << ' '
                                       << wc[i];
    }
  }
}

TEST(F32x16, IntegerArithmeticWraps) {
  const std::size_t n = 4096;
  const auto wa = samples::words(n, 0), wb = samples::words(n, 1);
  const auto s = [](std::uint32_t x) { return static_cast<std::int32_t>(x); };
  const auto check = [&](ProbeOp op, auto scalar) {
    for (const Isa isa : available_isas()) {
      const auto got = map<std::uint32_t>(op, isa, wa, wb);
      for (std::size_t i = 0; i < n; ++i)
        ASSERT_EQ(got[i], static_cast<std::uint32_t>(scalar(wa[i], wb[i])))
            << info_of(op).name << " on " << name(isa) << " of " << std::hex << wa[i] << ' ' << wb[i];
    }
  };
  using U = std::uint32_t;
  check(ProbeOp::integer_add, [](U a, U b) { return a + b; });
  check(ProbeOp::integer_sub, [](U a, U b) { return a - b; });
  check(ProbeOp::integer_mul, [](U a, U b) { return a * b; });
  check(ProbeOp::integer_and, [](U a, U b) { return a & b; });
  check(ProbeOp::integer_or, [](U a, U b) { return a | b; });
  check(ProbeOp::integer_xor, [](U a, U b) { return a ^ b; });
  check(ProbeOp::integer_min, [&](U a, U b) { return s(a) < s(b) ? a : b; });
  check(ProbeOp::integer_max, [&](U a, U b) { return s(a) > s(b) ? a : b; });
  check(ProbeOp::integer_less, [&](U a, U b) { return s(a) < s(b); });
  check(ProbeOp::integer_greater, [&](U a, U b) { return s(a) > s(b); });
  check(ProbeOp::integer_equal, [&](U a, U b) { return a == b; });
  check(ProbeOp::shift_left, [](U a, U) { return a << 5; });
  check(ProbeOp::shift_right, [](U a, U) { return a >> 5; });
  check(ProbeOp::shift_right_signed, [&](U a, U) { return s(a) >> 5; });
  check(ProbeOp::mask_bits, [](U a, U) { return a >> 31; });
  check(ProbeOp::bit_and, [](U a, U b) { return a & b; });
  check(ProbeOp::bit_or, [](U a, U b) { return a | b; });
  check(ProbeOp::bit_xor, [](U a, U b) { return a ^ b; });
}

TEST(F32x16, ComparisonsWithNanAreFalseExceptNotEqual) {
  const Floats a{nan, 1, nan, 1, 2, 0.0f, infinity}, b{1, nan, nan, 2, 1, -0.0f, infinity};
  using I = std::vector<std::int32_t>;
  for (const Isa isa : available_isas()) {
    EXPECT_EQ(map<std::int32_t>(ProbeOp::less, isa, a, b), (I{0, 0, 0, 1, 0, 0, 0})) << name(isa);
    EXPECT_EQ(map<std::int32_t>(ProbeOp::less_equal, isa, a, b), (I{0, 0, 0, 1, 0, 1, 1})) << name(isa);
    EXPECT_EQ(map<std::int32_t>(ProbeOp::greater, isa, a, b), (I{0, 0, 0, 0, 1, 0, 0})) << name(isa);
    EXPECT_EQ(map<std::int32_t>(ProbeOp::greater_equal, isa, a, b), (I{0, 0, 0, 0, 1, 1, 1})) << name(isa);
    EXPECT_EQ(map<std::int32_t>(ProbeOp::equal, isa, a, b), (I{0, 0, 0, 0, 0, 1, 1})) << name(isa);
    EXPECT_EQ(map<std::int32_t>(ProbeOp::not_equal, isa, a, b), (I{1, 1, 1, 1, 1, 0, 0})) << name(isa);
  }
}

TEST(F32x16, MinAndMaxGiveTheirSecondArgumentForNanAndForTwoZeros) {
  const Floats a{nan, 1, 0.0f, -0.0f}, b{1, nan, -0.0f, 0.0f};
  const std::vector<std::uint32_t> expected{bits(1), bits(nan), bits(-0.0f), bits(0.0f)};
  for (const Isa isa : available_isas()) {
    EXPECT_EQ(map<std::uint32_t>(ProbeOp::min, isa, a, b), expected) << name(isa);
    EXPECT_EQ(map<std::uint32_t>(ProbeOp::max, isa, a, b), expected) << name(isa);
  }
}

TEST(F32x16, RoundingToIntegersTakesTiesToEven) {
  const Floats x{0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 0.49999997f, 8388607.5f};
  for (const Isa isa : available_isas()) {
    EXPECT_EQ(map<std::int32_t>(ProbeOp::to_i32, isa, x), (std::vector<std::int32_t>{0, 2, 2, 0, -2, -2, 0, 8388608})) << name(isa);
    EXPECT_EQ(map<std::int32_t>(ProbeOp::to_i32_trunc, isa, x), (std::vector<std::int32_t>{0, 1, 2, 0, -1, -2, 0, 8388607})) << name(isa);
  }
}

TEST(F32x16, WhatDoesNotFitAnIntegerBecomesTheSmallestOne) {
  const Floats x{nan, infinity, -infinity, 0x1p31f, -0x1p31f, 0x1.fffffep30f, -0x1.000002p31f, 3e9f};
  constexpr std::int32_t least = std::numeric_limits<std::int32_t>::min();
  const std::vector<std::int32_t> expected{least, least, least, least, least, 2147483520, least, least};
  for (const Isa isa : available_isas()) {
    EXPECT_EQ(map<std::int32_t>(ProbeOp::to_i32, isa, x), expected) << name(isa);
    EXPECT_EQ(map<std::int32_t>(ProbeOp::to_i32_trunc, isa, x), expected) << name(isa);
  }
}

TEST(F32x16, IntegersBecomeTheNearestFloat) {
  const std::vector<std::int32_t> x{0, -1, 16777217, 16777219, -16777217, 2147483647, -2147483647 - 1};
  for (const Isa isa : available_isas())
    EXPECT_EQ(map<float>(ProbeOp::to_f32, isa, x), (Floats{0, -1, 16777216, 16777220, -16777216, 0x1p31f, -0x1p31f})) << name(isa);
}

/// The tree of the contract, written out.
template <class F>
float tree(std::array<float, 16> x, F f) {
  for (std::size_t half = 8; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) x[i] = f(x[i], x[i + half]);
  return x[0];
}

TEST(F32x16, ReductionsFollowTheCanonicalTree) {
  samples::Bits random(7);
  for (int round = 0; round < 500; ++round) {
    Floats x(16);
    for (float& v : x) v = static_cast<float>(static_cast<std::int64_t>(random.next()) >> (random.next() % 40)) * 0x1p-40f;
    std::array<float, 16> lanes;
    std::copy(x.begin(), x.end(), lanes.begin());
    for (const Isa isa : available_isas()) {
      EXPECT_EQ(map<float>(ProbeOp::reduce_add, isa, x)[0], tree(lanes, [](float a, float b) { return a + b; })) << name(isa);
      EXPECT_EQ(map<float>(ProbeOp::reduce_min, isa, x)[0], tree(lanes, [](float a, float b) { return a < b ? a : b; })) << name(isa);
      EXPECT_EQ(map<float>(ProbeOp::reduce_max, isa, x)[0], tree(lanes, [](float a, float b) { return a > b ? a : b; })) << name(isa);
    }
  }
}

TEST(F32x16, SixteenReductionsAreEachTheCanonicalTree) {
  samples::Bits random(9);
  Floats x(256), expected(16);
  for (float& v : x) v = static_cast<float>(static_cast<std::int64_t>(random.next()) >> (random.next() % 40)) * 0x1p-40f;
  for (std::size_t r = 0; r < 16; ++r) {
    std::array<float, 16> lanes;
    std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(16 * r), 16, lanes.begin());
    expected[r] = tree(lanes, [](float a, float b) { return a + b; });
  }
  for (const Isa isa : available_isas()) EXPECT_EQ(map<float>(ProbeOp::reduce_add_each, isa, x), expected) << name(isa);
}

TEST(F32x16, BytesAndHalvesOfLanesAreNumbersOfTheirOwn) {
  samples::Bits random(10);
  std::vector<std::uint32_t> a(64), b(64), sums(64), products(64), larger(64), shifted(64);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<std::uint32_t>(random.next()), b[i] = static_cast<std::uint32_t>(random.next());
    for (int byte = 0; byte < 4; ++byte) sums[i] |= (((a[i] >> 8 * byte) + (b[i] >> 8 * byte)) & 0xFFu) << 8 * byte;
    for (int half = 0; half < 2; ++half) {
      const auto x = static_cast<std::int16_t>(a[i] >> 16 * half), y = static_cast<std::int16_t>(b[i] >> 16 * half);
      const auto put = [&](std::uint32_t& to, int value) { to |= (static_cast<std::uint32_t>(value) & 0xFFFFu) << 16 * half; };
      put(products[i], x * y);
      put(larger[i], std::max(x, y));
      put(shifted[i], x >> 5);
    }
  }
  for (const Isa isa : available_isas()) {
    EXPECT_EQ(map<std::uint32_t>(ProbeOp::add_8, isa, a, b), sums) << name(isa);
    EXPECT_EQ(map<std::uint32_t>(ProbeOp::mul_16, isa, a, b), products) << name(isa);
    EXPECT_EQ(map<std::uint32_t>(ProbeOp::max_16, isa, a, b), larger) << name(isa);
    EXPECT_EQ(map<std::uint32_t>(ProbeOp::shift_right_signed_16, isa, a), shifted) << name(isa);
  }
}

TEST(F32x16, NumbersOfSixteenBitsBecomeBytesInTheirOrderAndAreClamped) {
  samples::Bits random(11);
  std::vector<std::uint32_t> a(64), b(64), in_turn(64), with_sign(64), without(64);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto near_bytes = [&] { return static_cast<std::uint32_t>(random.next() % 600) - 300u; };
    const auto pair = [&] { return (near_bytes() & 0xFFFFu) | near_bytes() << 16; };
    a[i] = i % 4 == 0 ? static_cast<std::uint32_t>(random.next()) : pair(),
    b[i] = i % 4 == 1 ? static_cast<std::uint32_t>(random.next()) : pair();
    in_turn[i] = (a[i] & 0xFFFFu) | b[i] << 16;
  }
  for (std::size_t byte = 0; byte < 4 * a.size(); ++byte) {
    // Sixteen lanes of each side make sixty-four bytes.
    const std::size_t vector = byte / 64, half = byte % 64;
    const std::vector<std::uint32_t>& from = half < 32 ? a : b;
    const int number = static_cast<std::int16_t>(from[16 * vector + half % 32 / 2] >> (half % 2 * 16));
    with_sign[byte / 4] |= (static_cast<std::uint32_t>(std::clamp(number, -128, 127)) & 0xFFu) << (byte % 4 * 8);
    without[byte / 4] |= static_cast<std::uint32_t>(std::clamp(number, 0, 255)) << (byte % 4 * 8);
  }
  for (const Isa isa : available_isas()) {
    EXPECT_EQ(map<std::uint32_t>(ProbeOp::in_turn_16, isa, a, b), in_turn) << name(isa);
    EXPECT_EQ(map<std::uint32_t>(ProbeOp::signed_bytes, isa, a, b), with_sign) << name(isa);
    EXPECT_EQ(map<std::uint32_t>(ProbeOp::unsigned_bytes, isa, a, b), without) << name(isa);
  }
}

TEST(F32x16, DotProductOf16384IsTheSameEverywhere) {
  samples::Bits random(8);
  const auto uniform = [&] { return static_cast<float>(static_cast<std::int64_t>(random.next())) * 0x1p-63f; };
  Floats a(16384), b(16384);
  for (float& v : a) v = uniform();
  for (float& v : b) v = uniform();
  std::array<float, 16> sums{};
  for (std::size_t i = 0; i < a.size(); ++i) sums[i % 16] = std::fma(a[i], b[i], sums[i % 16]);
  const float expected = tree(sums, [](float x, float y) { return x + y; });
  float backwards = 0;
  for (std::size_t i = a.size(); i-- > 0;) backwards = std::fma(a[i], b[i], backwards);
  ASSERT_NE(expected, backwards) << "these numbers do not tell orders apart";
  for (const Isa isa : available_isas()) EXPECT_EQ(bits(map<float>(ProbeOp::dot, isa, a, b)[0]), bits(expected)) << name(isa);
}

TEST(F32x16, DeinterleaveSeparatesEvenFromOddAndInterleaveUndoesIt) {
  Floats x(32), separated(32);
  for (std::size_t i = 0; i < 32; ++i) x[i] = static_cast<float>(i);
  for (std::size_t i = 0; i < 16; ++i) {
    separated[i] = x[2 * i];
    separated[16 + i] = x[2 * i + 1];
  }
  for (const Isa isa : available_isas()) {
    EXPECT_EQ(map<float>(ProbeOp::deinterleave, isa, x), separated) << name(isa);
    EXPECT_EQ(map<float>(ProbeOp::interleave, isa, separated), x) << name(isa);
  }
}

TEST(F32x16, LaneIndexCountsFromZero) {
  std::vector<std::int32_t> expected(16);
  for (int i = 0; i < 16; ++i) expected[static_cast<std::size_t>(i)] = i;
  for (const Isa isa : available_isas())
    EXPECT_EQ(map<std::int32_t>(ProbeOp::lane_index, isa, std::vector<std::int32_t>(16)), expected) << name(isa);
}

TEST(F32x16, BytesByPlaceGathersTheLowestOfAllLanesThenTheNext) {
  std::vector<std::uint32_t> x(16), expected(16);
  for (std::uint32_t i = 0; i < 64; ++i) {
    const std::uint32_t byte = 255 - i;
    x[i / 4] |= byte << (i % 4 * 8);
    const std::size_t to = 16 * (i % 4) + i / 4;
    expected[to / 4] |= byte << (to % 4 * 8);
  }
  for (const Isa isa : available_isas()) EXPECT_EQ(map<std::uint32_t>(ProbeOp::bytes_by_place, isa, x), expected) << name(isa);
}

TEST(F32x16, TransposeExchangesRowsAndLanes) {
  std::vector<std::uint32_t> x(256), expected(256);
  for (std::uint32_t i = 0; i < 256; ++i) x[i] = 0x7F800001u + i;  // signalling NaNs, which must pass untouched
  for (std::size_t r = 0; r < 16; ++r)
    for (std::size_t c = 0; c < 16; ++c) expected[16 * c + r] = x[16 * r + c];
  for (const Isa isa : available_isas()) EXPECT_EQ(map<std::uint32_t>(ProbeOp::transpose, isa, x), expected) << name(isa);
}

}  // namespace
}  // namespace dodona::simd_tests
