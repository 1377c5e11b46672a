#include "tests/simd/probe.h"

namespace dodona::simd_tests {
namespace {

std::uint32_t scalar_dot(std::uint32_t a, std::uint32_t b, std::uint32_t sum) {
  for (int j = 0; j < 32; j += 8) {
    const auto u = static_cast<std::int32_t>(a >> j & 0xFF);
    const std::int32_t s = static_cast<std::int8_t>(b >> j & 0xFF);
    sum += static_cast<std::uint32_t>(u * s);
  }
  return sum;
}

TEST(DotI8, ExtremeBytesDoNotSaturate) {
  // A pair of 255 * 127 is 64770: more than 16 bits hold.
  const std::vector<std::uint32_t> a(16, 0xFFFFFFFFu), b(16, 0x7F7F7F7Fu), c(16, 5);
  for (const Isa isa : available_isas()) {
    EXPECT_EQ(map<std::uint32_t>(ProbeOp::dpbusd, isa, a, b, c), std::vector<std::uint32_t>(16, 4 * 255 * 127 + 5)) << name(isa);
    EXPECT_EQ(map<std::int32_t>(ProbeOp::dpbusd, isa, a, std::vector<std::uint32_t>(16, 0x80808080u), c),
              std::vector<std::int32_t>(16, -4 * 255 * 128 + 5))
        << name(isa);
  }
}

TEST(DotI8, EveryPairOfBytesInEveryPlaceIsExact) {
  std::vector<std::uint32_t> a, b, c;
  for (std::uint32_t u = 0; u < 256; ++u) {
    for (std::uint32_t s = 0; s < 256; ++s) {
      for (int place = 0; place < 32; place += 8) {
        a.push_back(u << place);
        b.push_back(s << place);
        c.push_back(u * 0x01000193u);
      }
    }
  }
  std::vector<std::uint32_t> expected(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) expected[i] = scalar_dot(a[i], b[i], c[i]);
  for (const Isa isa : available_isas()) EXPECT_TRUE(map<std::uint32_t>(ProbeOp::dpbusd, isa, a, b, c) == expected) << name(isa);
}

TEST(DotI8, SumsWrap) {
  const std::vector<std::uint32_t> a(16, 0x000000FFu), b(16, 0x0000007Fu), c(16, 0x7FFFFFFFu);
  for (const Isa isa : available_isas())
    EXPECT_EQ(map<std::uint32_t>(ProbeOp::dpbusd, isa, a, b, c), std::vector<std::uint32_t>(16, 0x7FFFFFFFu + 255 * 127)) << name(isa);
}

TEST(DotI8, SmallVariantAgreesOnRandomBytes) {
  const std::size_t n = 1 << 16;
  auto a = samples::words(n, 9);
  const auto b = samples::words(n, 10), c = samples::words(n, 11);
  std::vector<std::uint32_t> expected(n);
  for (std::size_t i = 0; i < n; ++i) expected[i] = scalar_dot(a[i] & 0x1F1F1F1Fu, b[i], c[i]);
  for (const Isa isa : available_isas()) EXPECT_TRUE(map<std::uint32_t>(ProbeOp::dpbusd_small, isa, a, b, c) == expected) << name(isa);
}

}  // namespace
}  // namespace dodona::simd_tests
