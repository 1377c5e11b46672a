// Rules of linear, and of the sums that all products of unquantized matrices share.
#include "ops/gemm/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dodona/error.h"
#include "ops/sums/accumulator.h"
#include "ops/tiles/mma/mma.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"
#include "tests/ops/pair_sum.h"

namespace dodona {
namespace {

using helpers::in_mode;

constexpr float infinity = std::numeric_limits<float>::infinity();

/// A small number that every type holds, different everywhere.
double wave(std::int64_t i) {
  return static_cast<double>((i * 7 + i / 5) % 13 - 6) / 4;
}

ops::Linear call(std::int64_t t, std::int64_t n, std::int64_t k, DType input = DType::bf16, DType weight = DType::bf16,
                 DType out = DType::bf16) {
  ops::Linear op{.input = Tensor(input, {t, k}), .weight = Tensor(weight, {n, k}), .output = {}, .out_dtype = out};
  for (std::int64_t i = 0; i < t * k; ++i) quant::set(op.input, i, wave(i));
  for (std::int64_t i = 0; i < n * k; ++i) quant::set(op.weight, i, wave(3 * i + 1));
  return op;
}

/// The exact product, by the plainest loop; independent of everything in ops.
double plain(const ops::Linear& op, std::int64_t t, std::int64_t n) {
  const std::int64_t k = op.input.size(1);
  double sum = 0;
  for (std::int64_t i = 0; i < k; ++i) sum += quant::get(op.input, t * k + i) * quant::get(op.weight, n * k + i);
  return sum;
}

oracle::Verdict judged(const ops::Linear& op, const Tensor& output) {
  Arguments inputs;
  inputs.set("input", op.input);
  inputs.set("weight", op.weight);
  inputs.set_attr("out_dtype", op.out_dtype);
  return oracle::judge(registry().at("linear"), inputs, {{"output", output}}, {});
}

/// Numbers whose sums round: about normal, and different everywhere.
void fill_rough(const Tensor& t, std::int64_t seed) {
  std::uint32_t x = static_cast<std::uint32_t>(seed) * 2654435761u + 1;
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    double sum = 0;
    for (int j = 0; j < 4; ++j) x = x * 1664525u + 1013904223u, sum += static_cast<double>(x >> 8) * 0x1p-24 - 0.5;
    quant::set(t, i, sum);
  }
}

ops::Linear rough(std::int64_t t, std::int64_t n, std::int64_t k, DType input = DType::bf16) {
  ops::Linear op{.input = Tensor(input, {t, k}), .weight = Tensor(DType::bf16, {n, k}), .output = {}, .out_dtype = DType::f32};
  fill_rough(op.input, 1), fill_rough(op.weight, 2);
  return op;
}

TEST(Linear, SmallNumbersGiveTheExactProductForEveryTypeAndShape) {
  for (const DType input : {DType::bf16, DType::f16, DType::f32})
    for (const DType weight : {DType::bf16, DType::f16, DType::f32})
      for (const std::int64_t t : {1, 2, 3, 6, 7, 65})
        for (const std::int64_t n : {1, 4, 5, 33})
          for (const std::int64_t k : {1, 31, 32, 33, 1061}) {
            if (t * n * k > 16000) continue;
            const auto op = call(t, n, k, input, weight, DType::f32);
            const auto out = ops::run(op, in_mode(Mode::fast)).output;
            for (std::int64_t i = 0; i < t * n; ++i) ASSERT_EQ(quant::get(out, i), plain(op, i / n, i % n)) << t << ' ' << n << ' ' << k;
          }
}

TEST(Linear, GoldenIsThePlainDoubleLoopRoundedOnce) {
  for (const DType out : {DType::bf16, DType::f32}) {
    auto op = rough(3, 20, 300);
    op.out_dtype = out;
    const auto golden = ops::run(op, in_mode(Mode::golden)).output;
    for (std::int64_t i = 0; i < 60; ++i) EXPECT_EQ(quant::get(golden, i), quant::round_to(out, plain(op, i / 20, i % 20)));
  }
}

TEST(Linear, ARowHasTheSameBitsAloneAndInAnyBatch) {
  // 75 rows are tiles of 38 and 37: rows in lanes and what is left of them, over several parts of K.
  const auto op = rough(75, 45, 2100);
  const Tensor all = ops::run(op, in_mode(Mode::fast)).output;
  for (const std::int64_t row : {0, 48, 59})
    for (const std::int64_t count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 16}) {
      auto part = op;
      part.input = op.input.slice(0, row, row + count);
      const Tensor alone = ops::run(part, in_mode(Mode::fast, 1)).output;
      for (std::int64_t i = 0; i < alone.elements(); ++i) ASSERT_EQ(quant::get_bits(alone, i), quant::get_bits(all, row * 45 + i)) << row;
    }
  EXPECT_EQ(judged(op, all).failing(), 0);
}

/// The one order in which ops/tiles/dot/dot.h adds.
float in_order(const ops::Linear& op, std::int64_t t, std::int64_t n) {
  const std::int64_t k = op.input.size(1);
  return helpers::pair_sum(
      0, k, [&](std::int64_t i) { return static_cast<float>(quant::get(op.input, t * k + i)); },
      [&](std::int64_t i) { return static_cast<float>(quant::get(op.weight, n * k + i)); });
}

TEST(Linear, EveryOutputIsSummedInOneOrderOnEveryTier) {
  // Rows by ones, in registers, in lanes and beside them; columns that fill no group and no tile, parts of K that fill no step and no part.
  for (const DType weight : {DType::bf16, DType::f32})
    for (const std::int64_t t : {1, 2, 5, 7, 8, 9, 16, 25, 43, 65})
      for (const std::int64_t k : {49, 96, 1061, 2112}) {
        const std::int64_t n = t < 8 || t == 25 ? 51 : 5;
        auto op = rough(t, n, k);
        op.weight = Tensor(weight, {n, k});
        fill_rough(op.weight, 3);
        std::vector<float> expected;
        for (std::int64_t i = 0; i < t * n; ++i) expected.push_back(in_order(op, i / n, i % n));
        for (const Isa isa : available_isas()) {
          const Tensor out = ops::run(op, in_mode(Mode::fast, 2, isa)).output;
          for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(out.as<float>()[i], expected[i]) << t << ' ' << n << ' ' << k;
        }
      }
}

TEST(Linear, ColumnsOfAWiderMatrixAreReadAndWrittenInPlace) {
  auto op = rough(5, 40, 96);
  const Tensor dense = ops::run(op, in_mode(Mode::fast)).output;
  const Tensor wide = make_strided(DType::bf16, {5, 96}, {200, 1}, std::byte{0xFF}), tall = make_strided(DType::bf16, {40, 96}, {97, 1});
  copy(op.input, wide), copy(op.weight, tall);
  op.input = wide, op.weight = tall;
  for (const Mode mode : {Mode::fast, Mode::golden}) {
    const Tensor buffer(DType::f32, {5, 64});
    for (std::int64_t i = 0; i < buffer.elements(); ++i) quant::set(buffer, i, 99.0);
    op.output = buffer.slice(1, 3, 43);
    ops::run(op, in_mode(mode));
    for (std::int64_t i = 0; i < buffer.elements(); ++i) {
      const std::int64_t row = i / 64, column = i % 64 - 3;
      if (column < 0 || column >= 40) {
        EXPECT_EQ(quant::get(buffer, i), 99.0);
      } else if (mode == Mode::fast) {
        EXPECT_EQ(quant::get(buffer, i), quant::get(dense, row * 40 + column));
      } else {
        EXPECT_NEAR(quant::get(buffer, i), quant::get(dense, row * 40 + column), 1e-5);
      }
    }
  }
}

TEST(Linear, HonestAccumulatorsPass) {
  // What a tensor core computes in one chain, in four parts, and a scalar chain, from k = 0 on and from the end.
  for (const std::int64_t k : {16, 48, 4096}) {
    const auto op = rough(2, 16, k);
    const ops::MmaRows a(quant::tensor_core::half_mma, DType::bf16, op.input.data(), 2, k);
    const ops::MmaColumns b(quant::tensor_core::half_mma, DType::bf16, op.weight.data(), 16, k);
    const Tensor one(DType::f32, {2, 16}), four(DType::f32, {2, 16}), up(DType::f32, {2, 16}), down(DType::f32, {2, 16});
    ops::accumulate(a, b, 0, k, one.as<float>(), 16);
    for (std::int64_t part = 0; part < k / 16; part += 4) {
      std::vector<float> sum(32);
      ops::accumulate(a, b, part * 16, std::min(k, part * 16 + 64), sum.data(), 16);
      for (std::size_t i = 0; i < 32; ++i) four.as<float>()[i] += sum[i];
    }
    for (std::int64_t i = 0; i < 32; ++i)
      for (std::int64_t e = 0; e < k; ++e) {
        const auto product = [&](std::int64_t at) {
          return static_cast<float>(quant::get(op.input, i / 16 * k + at) * quant::get(op.weight, i % 16 * k + at));
        };
        up.as<float>()[i] += product(e);
        down.as<float>()[i] += product(k - 1 - e);
      }
    for (const Tensor& out : {one, four, up, down, ops::run(op, in_mode(Mode::fast)).output}) EXPECT_EQ(judged(op, out).failing(), 0) << k;
  }
}

TEST(Linear, ACancelledGiantIsWithinTheBudgetOfTensorCoresToo) {
  // 2^20 at k = 0 and its negative at the end: every small product between them loses its low bits.
  auto op = rough(1, 16, 256);
  quant::set(op.input, 0, 0x1p20), quant::set(op.input, 255, -0x1p20);
  for (std::int64_t n = 0; n < 16; ++n) quant::set(op.weight, n * 256, 1.0), quant::set(op.weight, n * 256 + 255, 1.0);
  const ops::MmaRows a(quant::tensor_core::half_mma, DType::bf16, op.input.data(), 1, 256);
  const ops::MmaColumns b(quant::tensor_core::half_mma, DType::bf16, op.weight.data(), 16, 256);
  const Tensor out(DType::f32, {1, 16});
  ops::accumulate(a, b, 0, 256, out.as<float>(), 16);
  double largest = 0;
  for (std::int64_t n = 0; n < 16; ++n) largest = std::max(largest, std::fabs(quant::get(out, n) - plain(op, 0, n)));
  EXPECT_GT(largest, 0.1);  // the case bites
  EXPECT_EQ(judged(op, out).failing(), 0);
  EXPECT_EQ(judged(op, ops::run(op, in_mode(Mode::fast)).output).failing(), 0);
}

TEST(Linear, DenormalFactorsMayCostATensorCoreTheBitsOfOthers) {
  // 2^-24 counts as 2^-14 where exponents are compared: next to 2^-24 * 2^15, the step keeps multiples of 2^-24 only.
  ops::Linear op{.input = Tensor(DType::f16, {1, 16}), .weight = Tensor(DType::f16, {16, 16}), .output = {}, .out_dtype = DType::f32};
  for (std::int64_t i = 0; i < 16; ++i) quant::set(op.input, i, 0x1p-24);
  for (std::int64_t i = 0; i < 256; ++i) quant::set(op.weight, i, i % 16 == 0 ? 0x1p15 : 1.875);
  const ops::MmaRows a(quant::tensor_core::half_mma, DType::f16, op.input.data(), 1, 16);
  const ops::MmaColumns b(quant::tensor_core::half_mma, DType::f16, op.weight.data(), 16, 16);
  const Tensor out(DType::f32, {1, 16});
  ops::accumulate(a, b, 0, 16, out.as<float>(), 16);
  EXPECT_EQ(quant::get(out, 0), 0x1p-9 + 15 * 0x1p-24);
  EXPECT_EQ(plain(op, 0, 0), 0x1p-9 + 15 * 1.875 * 0x1p-24);
  EXPECT_EQ(judged(op, out).failing(), 0);
}

TEST(Linear, WrongKernelsFail) {
  const auto op = rough(4, 64, 4096);
  const auto failing = [&](const std::function<double(std::int64_t, std::int64_t)>& value) {
    const Tensor out(DType::f32, {4, 64});
    for (std::int64_t i = 0; i < 256; ++i) quant::set(out, i, value(i / 64, i % 64));
    return judged(op, out).failing();
  };
  EXPECT_EQ(failing([&](std::int64_t t, std::int64_t n) { return plain(op, t, n); }), 0);
  // The last step of 16 products is left out.
  EXPECT_GT(failing([&](std::int64_t t, std::int64_t n) {
              double sum = 0;
              for (std::int64_t k = 0; k < 4080; ++k) sum += quant::get(op.input, t * 4096 + k) * quant::get(op.weight, n * 4096 + k);
              return sum;
            }),
            200);
  // The accumulator is rounded to bf16 every 128 products.
  EXPECT_GT(failing([&](std::int64_t t, std::int64_t n) {
              double sum = 0;
              for (std::int64_t k = 0; k < 4096; ++k) {
                sum += quant::get(op.input, t * 4096 + k) * quant::get(op.weight, n * 4096 + k);
                if (k % 128 == 127) sum = quant::round_to(DType::bf16, sum);
              }
              return sum;
            }),
            200);
  // The neighbouring row's weight.
  EXPECT_GT(failing([&](std::int64_t t, std::int64_t n) { return plain(op, t, (n + 1) % 64); }), 250);
}

TEST(Linear, NanAndInfinityFollowIeeeAndOverflowIsOpen) {
  auto op = call(3, 5, 40, DType::bf16, DType::bf16, DType::f32);
  quant::set(op.input, 0, infinity), quant::set(op.input, 41, std::nan(""));
  for (std::int64_t n = 0; n < 5; ++n) quant::set(op.weight, n * 40, n == 0 ? 0.0 : n == 1 ? -1.0 : 2.0);
  quant::set(op.input, 80, 0x1.8p127), quant::set(op.input, 81, -0x1.8p127);
  for (std::int64_t n = 0; n < 5; ++n) quant::set(op.weight, n * 40 + 1, 2.0);
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const Tensor out = ops::run(op, in_mode(mode)).output;
    EXPECT_TRUE(std::isnan(quant::get(out, 0))) << name(mode);
    EXPECT_EQ(quant::get(out, 1), -infinity) << name(mode);
    EXPECT_EQ(quant::get(out, 2), infinity) << name(mode);
    for (std::int64_t n = 0; n < 5; ++n) EXPECT_EQ(quant::get_bits(out, 5 + n), 0x7FFFFFFFu) << name(mode);
    EXPECT_EQ(judged(op, out).failing(), 0) << name(mode);
  }
}

TEST(Linear, NoProductsGiveZeroAndEmptyOutputsAreEmpty) {
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const Tensor zero = ops::run(call(2, 3, 0), in_mode(mode)).output;
    for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(quant::get_bits(zero, i), 0u);
    EXPECT_EQ(ops::run(call(0, 3, 32), in_mode(mode)).output.elements(), 0);
    EXPECT_EQ(ops::run(call(2, 0, 32), in_mode(mode)).output.elements(), 0);
  }
}

TEST(Linear, AnOutputTypeThatIsNeitherTheInputsNorF32IsRefused) {
  EXPECT_THROW(ops::run(call(2, 3, 32, DType::f32), in_mode(Mode::fast)), Error);
  EXPECT_THROW(ops::run(call(2, 3, 32, DType::bf16, DType::bf16, DType::f16), in_mode(Mode::fast)), Error);
  EXPECT_NO_THROW(ops::run(call(2, 3, 32, DType::f16, DType::bf16, DType::f16), in_mode(Mode::fast)));
}

TEST(HalfSum, TheBudgetCoversItsOwnWorstOrders) {
  const auto line = [](DType type, std::size_t k, double value) {
    return ops::Line{.type = type, .k = k, .values = std::vector<double>(k, value), .exponents = {}, .integers = {}, .scales = {}};
  };
  const auto sum_of = [](const ops::Line& a, const ops::Line& b) { return ops::sum_of(ops::half_in_parts, a, b, true); };
  const ops::Line ones = line(DType::bf16, 1000, 1.0);
  // Rising partial sums: each addition rounds at the size of the sum, up to 2^-24 of it.
  const ops::Bounded sum = sum_of(ones, ones);
  EXPECT_EQ(sum.exact, 1000.0);
  EXPECT_GE(sum.slack, 1000 * 1000 * 0x1p-24);
  EXPECT_LE(sum.slack, 1100 * 1000 * 0x1p-24);
  // A product that fp32 does not hold is rounded as well.
  EXPECT_GT(sum_of(line(DType::f32, 1000, 1.0), ones).slack, sum.slack + 999 * 0x1p-24);
  EXPECT_LE(sum_of(line(DType::bf16, 8, 0.0), line(DType::bf16, 8, 1.0)).slack, 0x1p-149);
}

TEST(Linear, ZerosPassWithEitherSignAndNothingElseDoes) {
  auto op = call(1, 4, 32, DType::bf16, DType::bf16, DType::f32);
  for (std::int64_t i = 0; i < 32; ++i) quant::set(op.input, i, 0.0);
  const Tensor out(DType::f32, {1, 4});
  quant::set(out, 1, -0.0);
  EXPECT_EQ(judged(op, out).failing(), 0);
  quant::set(out, 2, 0x1p-120);
  EXPECT_EQ(judged(op, out).failing(), 1);
}

/// Of so many rows of K = 7168 ones in f32 and columns of ones but for 2^40 at 0 and -2^40 at partners[n]: ones that are added to either
/// are lost, and so the first row says how many share a sum with both.
std::vector<std::int64_t> lost_with(std::int64_t rows, const std::vector<std::int64_t>& partners) {
  auto op = call(rows, 64, 7168, DType::f32, DType::f32, DType::f32);
  std::fill_n(op.input.as<float>(), op.input.elements(), 1.0f);
  std::fill_n(op.weight.as<float>(), op.weight.elements(), 1.0f);
  for (std::size_t n = 0; n < partners.size(); ++n) {
    float* const column = op.weight.as<float>() + static_cast<std::int64_t>(n) * 7168;
    column[0] = 0x1p40f, column[partners[n]] = -0x1p40f;
  }
  const Tensor out = ops::run(op, in_mode(Mode::hopper)).output;
  std::vector<std::int64_t> lost;
  for (std::size_t n = 0; n < partners.size(); ++n) lost.push_back(7168 - static_cast<std::int64_t>(out.as<const float>()[n]));
  return lost;
}

TEST(Linear, ProductsInF32AreAddedInThePartsThatCublasChooses) {
  // A neighbour, the end of the part, and the next part, with which all of both are lost.
  for (const auto& [rows, part] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{2, 224}, {5, 64}, {65, 128}, {129, 192}, {193, 128}, {257, 288}})
    EXPECT_EQ(lost_with(rows, {1, part - 1, part}), (std::vector<std::int64_t>{2, part, 2 * part})) << rows;
  // One row: a thread's own numbers are 4096 apart; then its neighbours, the thread 64 on, and block 4.
  EXPECT_EQ(lost_with(1, {4096, 1, 128, 1024}), (std::vector<std::int64_t>{2, 4, 8, 1024}));
  for (const auto& [t, n, k] : {std::tuple{385, 64, 7168}, {1, 63, 7168}, {1, 64, 7104}}) {
    const Error error = helpers::error_from(
        [&, t = t, n = n, k = k] { ops::run(call(t, n, k, DType::f32, DType::f32, DType::f32), in_mode(Mode::hopper)); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("up to 384 rows of K = 7168 and N = 64"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace dodona
