// Many random steps, each a row times a column: this library's fast form against integers.
#include "tests/quant/random_steps.h"

#include <gtest/gtest.h>

#include "dodona/error.h"

namespace dodona::steps {
namespace {

class RandomSteps : public testing::TestWithParam<Format> {};

TEST_P(RandomSteps, EqualThoseInIntegers) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Random random(seed);
    const int m = seed % 2 == 0 ? 32 : 5, n = seed % 2 == 0 ? 48 : 19;
    const Batch batch = draw(random, GetParam(), m, n, seed % 4 == 3 ? Kind::ordinary : Kind::all);
    const std::vector<std::uint32_t> expected = by_integers(GetParam(), batch);
    for (const Isa isa : available_isas()) {
      const std::vector<float> own = by_library(GetParam(), batch, isa);
      for (std::size_t i = 0; i < expected.size(); ++i)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(own[i]), expected[i]) << name(isa) << ", seed " << seed << ", step " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, RandomSteps, testing::ValuesIn(formats),
                         [](const testing::TestParamInfo<Format>& format) { return std::string(format.param.name); });

TEST(RandomSteps, ManyStepsInOneCallAreAChain) {
  const Format& format = *find("sm100_nvf4");
  Random random(5);
  constexpr int m = 3, n = 37, steps = 5;
  std::vector<Batch> parts;
  for (int i = 0; i < steps; ++i) parts.push_back(draw(random, format, m, n));
  const auto joined = [&](const auto& member, int lines, std::size_t bytes) {
    std::vector<std::uint8_t> all;
    for (int line = 0; line < lines; ++line)
      for (const Batch& part : parts) {
        const auto begin = (part.*member).begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(line) * bytes);
        all.insert(all.end(), begin, begin + static_cast<std::ptrdiff_t>(bytes));
      }
    return all;
  };
  const auto a = joined(&Batch::a, m, 32), b = joined(&Batch::b, n, 32), scale_a = joined(&Batch::scale_a, m, 4),
             scale_b = joined(&Batch::scale_b, n, 4);
  const ops::Fp4Rows rows(*format.fp4, {a.data(), 32 * steps, scale_a.data()}, m, 64 * steps);
  const ops::Fp4Columns columns(*format.fp4, {b.data(), 32 * steps, scale_b.data()}, n, 64 * steps);
  std::vector<float> whole(m * n, 1.0f);
  ops::accumulate(rows, columns, 0, 64 * steps, whole.data(), n);
  std::vector<std::uint32_t> chain(m * n, std::bit_cast<std::uint32_t>(1.0f));
  for (Batch& part : parts) {
    part.c = chain;
    chain = by_integers(format, part);
  }
  for (std::size_t i = 0; i < chain.size(); ++i) EXPECT_EQ(std::bit_cast<std::uint32_t>(whole[i]), chain[i]) << i;
}

TEST(Fp4Operands, ThatDoNotFitAreRefused) {
  const std::vector<std::uint8_t> codes(128), scales(16, 0x38);
  const ops::Fp4Codes operand{codes.data(), 32, scales.data()};
  EXPECT_THROW(ops::Fp4Rows(tc::sm100_nvf4, operand, 1, 40), Error);
  EXPECT_THROW(ops::Fp4Rows({DType::f8_e4m3, 24}, operand, 1, 48), Error);
  EXPECT_THROW(ops::Fp4Columns(tc::sm100_mxf4, operand, -1, 64), Error);
  const ops::Fp4Rows rows(tc::sm100_nvf4, operand, 2, 96);
  const ops::Fp4Columns columns(tc::sm100_nvf4, operand, 2, 96), longer(tc::sm100_nvf4, operand, 1, 128);
  std::array<float, 4> sums{};
  EXPECT_NO_THROW(ops::accumulate(rows, columns, 64, 96, sums.data(), 2));
  EXPECT_THROW(ops::accumulate(rows, columns, 16, 96, sums.data(), 2), Error);
  EXPECT_THROW(ops::accumulate(rows, columns, 64, 32, sums.data(), 2), Error);
  EXPECT_THROW(ops::accumulate(rows, columns, 0, 128, sums.data(), 2), Error);
  EXPECT_THROW(ops::accumulate(rows, longer, 0, 96, sums.data(), 2), Error);
}

}  // namespace
}  // namespace dodona::steps
