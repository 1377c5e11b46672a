// Rules of the Hadamard transforms.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "ops/nsa/hadamard_transform.h"
#include "ops/nsa/hadamard_transform_12n.h"
#include "ops/nsa/hadamard_transform_20n.h"
#include "ops/nsa/hadamard_transform_28n.h"
#include "ops/nsa/hadamard_transform_40n.h"
#include "quant/hadamard.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

Values transformed(const Values& x, Mode mode, double scale = 1.0, DType type = DType::f32) {
  const ops::HadamardTransform op{{.x = tensor_of(type, {1, static_cast<std::int64_t>(x.size())}, x), .scale = scale}};
  return values_of(ops::run(op, in_mode(mode)).out);
}

TEST(Hadamard, SmallRowsAreWorkedOutByHand) {
  for (const Mode mode : all_modes) {
    EXPECT_EQ(transformed({1, 2, 3, 4, 5, 6, 7, 8}, mode), (Values{36, -4, -8, 0, -16, 0, 0, 0}));
    EXPECT_EQ(transformed({1, 2, 3}, mode), (Values{6, 2, 0})) << "padded with zeros, of which nothing is kept";
    EXPECT_EQ(transformed({3}, mode, 0.5), (Values{1.5}));
  }
}

TEST(Hadamard, ARowWithASingleOneIsAColumnOfSignsInSylvestersOrder) {
  for (const Mode mode : all_modes)
    for (const std::size_t width : {64u, 128u, 200u, 512u})
      for (const std::size_t one : {0u, 1u, 37u, 63u}) {
        Values x(width, 0.0);
        x[one] = 1;
        const Values y = transformed(x, mode);
        for (std::size_t i = 0; i < width; ++i)
          ASSERT_EQ(y[i], std::popcount(i & one) % 2 == 0 ? 1.0 : -1.0) << width << " " << one << " " << i;
      }
}

TEST(Hadamard, TwiceOverIsTheIdentityTimesTheSize) {
  for (const Mode mode : all_modes)
    for (const std::size_t width : {128u, 1024u, 4096u}) {
      Values x;
      for (std::size_t i = 0; i < width; ++i) x.push_back(static_cast<double>(i * i % 17) - 8);
      EXPECT_EQ(transformed(transformed(x, mode), mode, 1.0 / static_cast<double>(width)), x) << width;
    }
}

TEST(Hadamard, PassesGoInTheOrderOfRisingStrides) {
  // 2^24 + 1 is lost where 2^24 is added first: elements 0 and 2 meet in the second pass, 0 and 1 in the first.
  for (const Mode mode : {Mode::fast, Mode::hopper}) {
    EXPECT_EQ(transformed({0x1p24, 1, 1, 0, 0, 0, 0, 0}, mode)[0], 0x1p24);
    EXPECT_EQ(transformed({1, 1, 0x1p24, 0, 0, 0, 0, 0}, mode)[0], 0x1p24 + 2);
  }
}

TEST(Hadamard, FastModeHasTheBitsOfHopperModeWhereNothingIsDenormal) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    for (const std::int64_t width : {8, 100, 128, 137, 512, 8192}) {
      const ops::HadamardTransform op{{.x = normal(type, {3, width}, "x"), .scale = 0.1}};
      EXPECT_TRUE(same_bits(ops::run(op, in_mode(Mode::fast)).out, ops::run(op, in_mode(Mode::hopper)).out)) << name(type) << " " << width;
    }
}

template <class Op>
void expect_the_same_bits(std::initializer_list<std::int64_t> widths) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    for (const std::int64_t width : widths) {
      const Op op{{.x = normal(type, {3, width}, "x"), .scale = 0.1}};
      const Tensor expected = ops::run(op, in_mode(Mode::hopper)).out;
      for (const Isa isa : available_isas()) {
        Exec exec = in_mode(Mode::fast);
        exec.isa = isa;
        EXPECT_TRUE(same_bits(ops::run(op, exec).out, expected)) << name(type) << " " << width << " " << name(isa);
      }
    }
}
TEST(Hadamard, ChunksOfABlockAndMoreHaveThoseBitsToo) {
  // Chunks of 128, 256 and 512, whole and with zeros behind the end, one of which begins a block.
  expect_the_same_bits<ops::HadamardTransform12n>({1536, 1500, 1541, 3072, 3000});
  expect_the_same_bits<ops::HadamardTransform20n>({2560, 5120});
  expect_the_same_bits<ops::HadamardTransform28n>({3584, 7168, 7100});
  expect_the_same_bits<ops::HadamardTransform40n>({5120, 20480});
}

TEST(Hadamard, HopperModeFlushesDenormals) {
  EXPECT_EQ(transformed({0x1p-126, -0x1.8p-126}, Mode::hopper), (Values{0, 0x1.4p-125}));
  EXPECT_EQ(transformed({0x1p-126, -0x1.8p-126}, Mode::fast), (Values{-0x1p-127, 0x1.4p-125}));
}

TEST(Hadamard, MatricesOfSignsAreOrthogonal) {
  for (const std::int64_t size : {12, 20, 28, 40}) {
    const auto signs = quant::hadamard_signs(size);
    ASSERT_EQ(static_cast<std::int64_t>(signs.size()), size);
    for (std::size_t a = 0; a < signs.size(); ++a)
      for (std::size_t b = 0; b < a; ++b) EXPECT_EQ(2 * std::popcount(signs[a] ^ signs[b]), size) << size << " " << a << " " << b;
  }
}

TEST(Hadamard, ChunksAreMixedByTheMatrixOfSigns) {
  // Element 4 c + j is element j of chunk c: ones in j = 0 of one chunk give that column of the matrix, the same for every j.
  for (const Mode mode : all_modes)
    for (std::size_t c = 0; c < 12; ++c) {
      ops::HadamardTransform12n op{{.x = filled(DType::f32, {1, 48}, 0)}};
      quant::set(op.x, static_cast<std::int64_t>(4 * c), 1);
      const Values y = values_of(ops::run(op, in_mode(mode)).out);
      for (std::size_t i = 0; i < 48; ++i) ASSERT_EQ(y[i], (quant::hadamard_signs(12)[i / 4] >> c & 1) != 0 ? -1.0 : 1.0);
    }
}

TEST(Hadamard, ARowMayBeTransformedInPlace) {
  for (const Mode mode : all_modes) {
    ops::HadamardTransform op{{.x = normal(DType::bf16, {4, 300}, "x"), .scale = 0.1}};
    const Tensor apart = ops::run(op, in_mode(mode)).out;
    op.out = op.x;
    EXPECT_TRUE(same_bits(ops::run(op, in_mode(mode)).out, apart));
  }
}

}  // namespace
}  // namespace dodona
