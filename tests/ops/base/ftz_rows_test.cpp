// Rows of flushed fp32 arithmetic, on every tier, against the functions that take one number.
#include "ops/base/ftz_rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "quant/hopper/fast_math.h"

namespace dodona::ops {
namespace {

/// Numbers of every kind, most of them such that products and sums lie about the smallest normal number.
float number(std::mt19937& random) {
  constexpr std::uint32_t edges[] = {0,          0x80000000, 1,          0x807FFFFF, 0x007FFFFF, 0x00800000, 0x80800000, 0x00800001,
                                     0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345, 0x3F800000, 0x3F7FFFFF, 0x1FFFFFFF};
  const std::uint32_t word = static_cast<std::uint32_t>(random());
  switch (random() % 8) {
    case 0: return std::bit_cast<float>(word);
    case 1: return std::bit_cast<float>(edges[word % std::size(edges)]);
    case 2: return std::bit_cast<float>((word & 0x80FFFFFF) | (word % 3) << 23);         // small
    case 3: return std::bit_cast<float>(0x3F800000 - (word % 4) + (word & 0x80000000));  // about 1
    default: return std::bit_cast<float>((word & 0x807FFFFF) | (62 + word % 4) << 23);   // about 2^-64
  }
}

TEST(FtzRows, EqualTheFunctionsOfOneNumberInEveryTier) {
  namespace hw = quant::hopper;
  std::mt19937 random(3);
  std::vector<float> x(1 << 16), y(x.size()), z(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = number(random);
    y[i] = number(random);
    // Often what a fused sum needs to come back to the smallest normal number.
    z[i] = random() % 2 == 0 ? number(random) : (random() % 2 == 0 ? 0x1p-126f : 0x1.000002p-126f) - x[i] * y[i];
  }
  std::int64_t at_the_edge = 0;
  for (std::size_t i = 0; i < x.size(); ++i) at_the_edge += hw::fma(x[i], y[i], z[i]) == 0x1p-126f;
  ASSERT_GT(at_the_edge, 1000);
  for (const Isa isa : available_isas())
    for (const std::int64_t n :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{15}, std::int64_t{37}, static_cast<std::int64_t>(x.size())}) {
      std::vector<float> products(x.size(), 7.0f), sums = products, fused = products;
      mul_ftz(x.data(), y.data(), n, products.data(), isa);
      add_ftz(x.data(), y.data(), n, sums.data(), isa);
      fma_ftz(x.data(), y.data(), z.data(), n, fused.data(), isa);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const bool written = static_cast<std::int64_t>(i) < n;
        const auto same = [&](float got, float expected) {
          return std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(written ? expected : 7.0f);
        };
        ASSERT_TRUE(same(products[i], hw::mul(x[i], y[i]))) << name(isa) << ": " << x[i] << " * " << y[i] << " is not " << products[i];
        ASSERT_TRUE(same(sums[i], hw::add(x[i], y[i]))) << name(isa) << ": " << x[i] << " + " << y[i] << " is not " << sums[i];
        ASSERT_TRUE(same(fused[i], hw::fma(x[i], y[i], z[i])))
            << name(isa) << ": " << x[i] << " * " << y[i] << " + " << z[i] << " is not " << fused[i];
      }
    }
}

TEST(FtzRows, MayWriteWhereTheyRead) {
  for (const Isa isa : available_isas()) {
    std::vector<float> x(20, 3.0f), y(20, 0x1p-126f);
    mul_ftz(x.data(), y.data(), 20, x.data(), isa);
    EXPECT_EQ(x, std::vector<float>(20, 0x1.8p-125f)) << name(isa);
    fma_ftz(y.data(), y.data(), y.data(), 20, y.data(), isa);  // goes one by one
    EXPECT_EQ(y, std::vector<float>(20, 0x1p-126f)) << name(isa);
  }
}

}  // namespace
}  // namespace dodona::ops
