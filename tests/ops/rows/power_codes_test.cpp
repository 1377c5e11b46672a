// Codes that vector code makes without multiplying, under factors that are powers of two and in rows of one factor: of every bf16, the
// codes of its product.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "dodona/exec.h"
#include "ops/rows/quantize/fp4_row.h"
#include "ops/rows/quantize/group_row.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"

namespace dodona {
namespace {

float number_of(std::uint16_t code) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16);
}
std::uint8_t e4m3_code(float x) {
  return std::isnan(x) ? std::uint8_t{0xFE} : quant::to_e4m3_satfinite(static_cast<double>(x));
}
std::uint8_t e2m1_code(float x) {
  return quant::to_e2m1(static_cast<double>(x));
}

/// Elements by steps of an odd number, so that groups hold numbers of all sizes side by side, or in order, where they do not.
std::vector<std::uint16_t> every_bf16(std::uint32_t step) {
  std::vector<std::uint16_t> x(65536);
  for (std::uint32_t i = 0; i < 65536; ++i) x[i] = static_cast<std::uint16_t>(i * step);
  return x;
}
/// Without infinities and NaN, whose rows are made another way.
std::vector<std::uint16_t> every_finite_bf16(std::uint32_t step) {
  std::vector<std::uint16_t> x = every_bf16(step);
  std::erase_if(x, [](std::uint16_t code) { return (code & 0x7F80) == 0x7F80; });
  return x;
}
/// Without those whose products saturate, for the same reason.
std::vector<std::uint16_t> small_bf16(std::uint32_t step, float factor, float largest) {
  std::vector<std::uint16_t> x = every_finite_bf16(step);
  std::erase_if(x, [&](std::uint16_t code) { return !(std::fabs(number_of(code) * factor) <= largest); });
  x.resize(x.size() / 128 * 128);
  return x;
}

constexpr std::uint32_t steps[] = {1, 40503};

void check_e4m3(const std::vector<std::uint16_t>& x, std::int64_t size, float factor) {
  const auto groups = static_cast<std::int64_t>(x.size()) / size;
  const std::vector<float> factors(static_cast<std::size_t>(groups), factor);
  for (const Isa isa : available_isas()) {
    std::vector<std::uint8_t> codes(x.size());
    dispatch<ops::GroupCodesKernel>(isa, ops::GroupRow{x.data(), groups, size, DType::bf16}, factors.data(), ops::GroupCode::e4m3,
                                    codes.data());
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(codes[i], e4m3_code(number_of(x[i]) * factor)) << name(isa) << ", " << number_of(x[i]) << " * " << factor;
  }
}

TEST(PowerCodes, OfE4m3AreThoseOfTheProduct) {
  for (const std::uint32_t step : steps)
    for (const std::int64_t size : {32, 128})
      for (const int e : {-127, -119, -118, -60, -3, 0, 1, 9, 77, 118, 119, 120, 127}) {
        const float factor = std::ldexp(1.0f, e);
        check_e4m3(small_bf16(step, factor, 448.0f), size, factor);
        check_e4m3(every_finite_bf16(step), size, factor);
        check_e4m3(every_bf16(step), size, factor);
      }
}

TEST(PowerCodes, OfE4m3UnderAFactorOfZeroAreZerosWithTheirSigns) {
  check_e4m3(every_finite_bf16(1), 32, 0.0f);
  check_e4m3(every_bf16(40503), 32, 0.0f);
}

/// Numbers whose products are not denormal codes, and few of the others among them: a row that goes on as it began.
std::vector<std::uint16_t> mostly_normal_bf16(float factor) {
  std::vector<std::uint16_t> x = every_finite_bf16(40503);
  std::uint32_t others = 0;
  std::erase_if(x, [&](std::uint16_t code) { return std::fabs(number_of(code) * factor) < 0x1p-6f && others++ % 997 != 0; });
  return x;
}

TEST(PowerCodes, OfE4m3UnderOneFactorAreThoseOfTheProduct) {
  std::vector<float> factors = {0x1.fffffep0f, 0x1.fffffcp0f,    0x1.000002p0f, 0x1.8p0f,        0x1.555556p0f, 1.0f / 3.0f,
                                448.0f / 3.7f, 0x1.fffffep-119f, 0x1p-118f,     0x1.234568p118f, 0x1.3p119f};
  for (std::uint32_t i = 0; i < 200; ++i) {
    const std::uint32_t mantissa = i * 2654435761u >> 9, exponent = 9 + i * 40503u % 237u;
    factors.push_back(std::bit_cast<float>(exponent << 23 | mantissa));
  }
  for (const float factor : factors) {
    const std::vector<std::uint16_t> x = mostly_normal_bf16(factor);
    check_e4m3(x, static_cast<std::int64_t>(x.size()), factor);
  }
  for (const float factor : {0.01f, 0.0f, -1.0f, std::nanf(""), INFINITY}) check_e4m3(every_bf16(40503), 65536, factor);
}

void check_e2m1(const std::vector<std::uint16_t>& x, float factor) {
  const std::vector<float> factors(x.size() / 32, factor);
  for (const Isa isa : available_isas()) {
    std::vector<std::uint8_t> codes(x.size() / 2);
    dispatch<ops::Fp4CodesKernel>(
        isa, ops::Fp4CodesRow{x.data(), codes.data(), factors.data(), static_cast<std::int64_t>(x.size()) / 16, DType::bf16});
    for (std::size_t i = 0; i < x.size(); ++i) {
      const int code = codes[i / 2] >> (i % 2 * 4) & 15;
      ASSERT_EQ(code, e2m1_code(number_of(x[i]) * factor)) << name(isa) << ", " << number_of(x[i]) << " * " << factor;
    }
  }
}

TEST(PowerCodes, OfE2m1AreThoseOfTheProduct) {
  for (const std::uint32_t step : steps)
    for (const int e : {-127, -119, -118, -60, -1, 0, 5, 100, 123, 124, 125, 127}) {
      const float factor = std::ldexp(1.0f, e);
      check_e2m1(small_bf16(step, factor, 6.0f), factor);
      check_e2m1(every_finite_bf16(step), factor);
      check_e2m1(every_bf16(step), factor);
    }
  check_e2m1(every_finite_bf16(1), 0.0f);
  check_e2m1(every_bf16(1), 0.0f);
}

}  // namespace
}  // namespace dodona
