// Rules of bmm_fp8.
#include "ops/gemm/bmm_fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "dodona/error.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using helpers::in_mode;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr Mode every_mode[] = {Mode::golden, Mode::fast, Mode::hopper};

Tensor number(float value) {
  const Tensor t(DType::f32, {});
  *t.as<float>() = value;
  return t;
}

/// A small whole number or a half, different everywhere.
double wave(std::int64_t i) {
  return static_cast<double>((i * 7 + i / 5) % 13 - 6) / 2;
}

ops::BmmFp8 call(std::int64_t l, std::int64_t m, std::int64_t n, std::int64_t k, DType a = DType::f8_e4m3, DType b = DType::f8_e4m3) {
  const Tensor rows(a, {l, m, k}), columns(b, {l, n, k});
  for (std::int64_t i = 0; i < rows.elements(); ++i) quant::set(rows, i, wave(i));
  for (std::int64_t i = 0; i < columns.elements(); ++i) quant::set(columns, i, wave(3 * i + 1));
  return {.A = rows, .B = columns.transpose(1, 2), .A_scale = number(0.5f), .B_scale = number(2.0f), .out = {}};
}

ops::BmmFp8 result(const ops::BmmFp8& op, Mode mode) {
  return ops::run(op, in_mode(mode));
}

oracle::Verdict judged(const ops::BmmFp8& op, const Tensor& out) {
  Arguments inputs;
  for (const auto& [key, tensor] : {std::pair{"A", op.A}, {"B", op.B}, {"A_scale", op.A_scale}, {"B_scale", op.B_scale}})
    inputs.set(key, tensor);
  inputs.set_attr("dtype", op.dtype);
  inputs.set_attr("accumulator", op.accumulator);
  return oracle::judge(registry().at("bmm_fp8"), inputs, {{"out", out}}, {});
}

TEST(BmmFp8, SmallIntegersGiveTheExactProductInEveryModeAndShape) {
  for (const auto& [a, b] : {std::pair{DType::f8_e4m3, DType::f8_e4m3}, {DType::f8_e5m2, DType::f8_e4m3}, {DType::f8_e4m3, DType::f8_e5m2}})
    for (const std::int64_t m : {1, 2, 3, 7, 17, 130})
      for (const std::int64_t n : {16, 48, 80, 112})
        for (const std::int64_t k : {16, 80, 528}) {
          if (m == 130 && k == 528) continue;
          const auto op = call(1, m, n, k, a, b);
          const auto fast = result(op, Mode::fast);
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
              double sum = 0;
              for (std::int64_t e = 0; e < k; ++e) sum += quant::get(op.A, i * k + e) * quant::get(op.B, e * n + j);
              ASSERT_EQ(quant::get(fast.out, i * n + j), quant::round_to(DType::bf16, sum))
                  << m << ' ' << n << ' ' << k << ' ' << i << ' ' << j;
            }
        }
}

TEST(BmmFp8, EveryFiniteCodeIsDecodedExactly) {
  for (const DType type : {DType::f8_e4m3, DType::f8_e5m2})
    for (const bool left : {false, true})
      for (int code = 0; code < 256; ++code) {
        // One element times 1; the others are zero.
        auto op = left ? call(1, 3, 16, 64, type, DType::f8_e4m3) : call(1, 3, 16, 64, DType::f8_e4m3, type);
        op.dtype = DType::f16;
        for (std::int64_t i = 0; i < op.A.elements(); ++i) quant::set(op.A, i, 0.0);
        for (std::int64_t i = 0; i < op.B.elements(); ++i) quant::set(op.B, i, 0.0);
        const std::int64_t k = code % 64;
        quant::set(op.A, k, 1.0), quant::set(op.B, k * 16 + 5, 1.0);
        quant::set_bits(left ? op.A : op.B, left ? k : k * 16 + 5, static_cast<std::uint64_t>(code));
        const double value = quant::load(type, &code, 0);
        for (const Mode mode : every_mode) {
          const double got = quant::get(result(op, mode).out, 5);
          EXPECT_TRUE(got == value || (std::isnan(got) && std::isnan(value))) << name(mode) << ' ' << code << ' ' << got;
        }
      }
}

TEST(BmmFp8, ScalesMultiplyAndMayHaveOneElement) {
  auto op = call(2, 3, 16, 32);
  const Tensor one = result(op, Mode::fast).out;
  const Tensor four(DType::f32, {1});
  *four.as<float>() = 4.0f;
  op.A_scale = four;
  for (const Mode mode : every_mode) {
    const auto scaled = result(op, mode);
    for (std::int64_t i = 0; i < one.elements(); ++i) EXPECT_EQ(quant::get(scaled.out, i), 8.0 * quant::get(one, i)) << name(mode);
  }
}

TEST(BmmFp8, RowMajorBAndE5m2ByE5m2AreRefused) {
  auto op = call(2, 3, 16, 32);
  op.B = Tensor(DType::f8_e4m3, {2, 32, 16});
  EXPECT_THROW(result(op, Mode::fast), Error);
  EXPECT_THROW(result(call(1, 3, 16, 32, DType::f8_e5m2, DType::f8_e5m2), Mode::fast), Error);
  EXPECT_THROW(result(call(1, 3, 24, 32), Mode::fast), Error);
  EXPECT_THROW(result(call(1, 3, 16, 40), Mode::fast), Error);
}

TEST(BmmFp8, EmptySizesGiveEmptyOutputsAndNoProductsGiveZero) {
  for (const Mode mode : every_mode) {
    EXPECT_EQ(result(call(0, 3, 16, 32), mode).out.elements(), 0);
    EXPECT_EQ(result(call(2, 0, 16, 32), mode).out.elements(), 0);
    const auto op = result(call(1, 2, 16, 0), mode);
    for (std::int64_t i = 0; i < 32; ++i) EXPECT_EQ(quant::get_bits(op.out, i), 0u) << name(mode);
  }
}

TEST(BmmFp8, NanAndInfinityFollowIeee) {
  auto op = call(1, 4, 16, 64, DType::f8_e4m3, DType::f8_e5m2);
  for (std::int64_t i = 0; i < op.A.elements(); ++i) quant::set(op.A, i, 1.0);
  for (std::int64_t i = 0; i < op.B.elements(); ++i) quant::set(op.B, i, 1.0);
  quant::set(op.B, 7 * 16 + 3, -infinity);                                           // column 3
  quant::set(op.B, 8 * 16 + 4, infinity), quant::set(op.B, 50 * 16 + 4, -infinity);  // column 4
  quant::set(op.A, 1 * 64 + 7, 0.0);                                                 // row 1: 0 * inf in column 3
  quant::set_bits(op.A, 2 * 64 + 9, 0xFF);                                           // row 2: NaN
  for (const Mode mode : every_mode) {
    const auto out = result(op, mode);
    EXPECT_EQ(quant::get(out.out, 3), -infinity) << name(mode);
    EXPECT_TRUE(std::isnan(quant::get(out.out, 4))) << name(mode);
    EXPECT_TRUE(std::isnan(quant::get(out.out, 16 + 3))) << name(mode);
    EXPECT_EQ(quant::get(out.out, 16 + 5), 63.0) << name(mode);
    for (std::int64_t j = 0; j < 16; ++j) EXPECT_TRUE(std::isnan(quant::get(out.out, 32 + j))) << name(mode);
    EXPECT_EQ(judged(op, out.out).failing(), 0) << name(mode);
  }
}

/// One large product and many small ones: what a narrow accumulator loses.
ops::BmmFp8 dominated_row() {
  auto op = call(1, 1, 16, 4096);
  for (std::int64_t i = 0; i < op.A.elements(); ++i) quant::set(op.A, i, 1.0);
  for (std::int64_t i = 0; i < op.B.elements(); ++i) quant::set(op.B, i, 1.0);
  quant::set(op.A, 0, 256.0);
  for (std::int64_t j = 0; j < 16; ++j) quant::set(op.B, j, 256.0);
  return op;
}

TEST(BmmFp8, ANarrowAccumulatorIsHonestByDefaultAndNotWithFp32) {
  auto op = dominated_row();
  const auto hopper = result(op, Mode::hopper), fast = result(op, Mode::fast);
  EXPECT_EQ(quant::get(hopper.out, 0), 65536.0);  // 4095 ones are lost
  EXPECT_EQ(quant::get(fast.out, 0), quant::round_to(DType::bf16, 65536.0 + 4095.0));
  EXPECT_EQ(judged(op, hopper.out).outcome, oracle::Outcome::pass);
  EXPECT_EQ(judged(op, fast.out).outcome, oracle::Outcome::pass);
  quant::set(hopper.out, 0, 65536.0 * (1 - 0x1p-7));  // more than can be lost
  EXPECT_EQ(judged(op, hopper.out).failing(), 1);
  op.accumulator = "fp32";
  EXPECT_EQ(judged(op, hopper.out).failing(), 16);
  EXPECT_EQ(judged(op, fast.out).outcome, oracle::Outcome::pass);
  EXPECT_THROW(result(op, Mode::hopper), Error);
}

TEST(BmmFp8, SaturatedRowsOfTheH200StayWithinTheBudget) {
  auto op = call(1, 2, 16, 4096);
  for (std::int64_t i = 0; i < op.A.elements(); ++i) quant::set(op.A, i, i < 4096 ? 448.0 : 416.0);
  for (std::int64_t i = 0; i < op.B.elements(); ++i) quant::set(op.B, i, i % 16 < 8 ? 448.0 : static_cast<double>(i % 3 - 1));
  const auto hopper = result(op, Mode::hopper), fast = result(op, Mode::fast);
  EXPECT_LT(quant::get(hopper.out, 0), 0.99 * quant::get(fast.out, 0));
  EXPECT_EQ(judged(op, hopper.out).failing(), 0);
  EXPECT_EQ(judged(op, fast.out).failing(), 0);
}

TEST(BmmFp8, TheCutOfTheSumItselfIsPartOfTheBudget) {
  // 28 * 8192 + 2 * 12288 + 80 - 1 = 254031: nothing is cut off the products, and 15 off the sum. That leaves 254016, halfway between two
  // numbers of f16 (times 1/16).
  auto op = call(1, 1, 16, 32);
  op.dtype = DType::f16;
  op.A_scale = number(0x1p-4f), op.B_scale = number(1.0f);
  for (std::int64_t k = 0; k < 32; ++k) {
    quant::set(op.A, k, 64.0);
    for (std::int64_t j = 0; j < 16; ++j) quant::set(op.B, k * 16 + j, k < 28 ? 128.0 : k < 30 ? 192.0 : k == 30 ? 1.25 : -0x1p-6);
  }
  const auto hopper = result(op, Mode::hopper), fast = result(op, Mode::fast);
  EXPECT_EQ(quant::get(hopper.out, 0), 253952.0 / 16);
  EXPECT_EQ(quant::get(fast.out, 0), 254080.0 / 16);
  EXPECT_EQ(judged(op, hopper.out).failing(), 0);
  EXPECT_EQ(judged(op, fast.out).failing(), 0);
}

TEST(BmmFp8, WrongSumsFail) {
  const auto op = call(1, 5, 32, 128);
  const auto out = result(op, Mode::golden);
  auto short_by_one = op;  // the last product is left out
  short_by_one.A = op.A.clone();
  for (std::int64_t i = 0; i < 5; ++i) quant::set(short_by_one.A, i * 128 + 127, 0.0);
  const auto verdict = judged(op, result(short_by_one, Mode::fast).out);
  EXPECT_EQ(judged(op, out.out).outcome, oracle::Outcome::pass);
  EXPECT_GT(verdict.failing(), 60);
}

TEST(BmmFp8, ARowDoesNotDependOnTheOthersNorOnThreads) {
  const auto op = call(3, 40, 112, 1040, DType::f8_e5m2);
  Exec exec;
  exec.threads = 1;
  const Tensor all = ops::run(op, exec).out;
  exec.threads = 2;
  const Tensor again = ops::run(op, exec).out;
  for (const std::int64_t row : {0, 7, 39}) {
    auto alone = op;
    alone.A = op.A.slice(0, 1, 2).slice(1, row, row + 1).clone();
    alone.B = op.B.slice(0, 1, 2);
    const Tensor one = ops::run(alone, exec).out;
    for (std::int64_t j = 0; j < 112; ++j) EXPECT_EQ(quant::get_bits(one, j), quant::get_bits(all, (40 + row) * 112 + j));
  }
  for (std::int64_t i = 0; i < all.elements(); ++i) ASSERT_EQ(quant::get_bits(all, i), quant::get_bits(again, i));
}

TEST(BmmFp8, HopperModeFlushesNoScaleAndLeavesNoNegativeZeroOfAFactorOfZero) {
  const Tensor rows(DType::f8_e4m3, {1, 1, 16}), columns(DType::f8_e4m3, {1, 16, 16});
  for (std::int64_t i = 0; i < 16; ++i) quant::set(rows, i, -448);
  for (std::int64_t i = 0; i < 256; ++i) quant::set(columns, i, 448);
  ops::BmmFp8 op{.A = rows, .B = columns.transpose(1, 2), .A_scale = number(0x1p-126f), .B_scale = number(0x1p-7f), .out = {}};
  EXPECT_EQ(quant::get(result(op, Mode::hopper).out, 0), -16.0 * 448 * 448 * 0x1p-133);
  op.A_scale = number(0x1p-149f);
  EXPECT_EQ(quant::get(result(op, Mode::hopper).out, 0), 0.0);
  EXPECT_FALSE(std::signbit(quant::get(result(op, Mode::hopper).out, 0)));
}

}  // namespace
}  // namespace dodona
