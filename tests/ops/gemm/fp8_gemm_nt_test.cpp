// Rules of fp8_gemm_nt.
#include "ops/gemm/fp8_gemm_nt.h"

#include <gtest/gtest.h>

#include "dodona/error.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr Mode modes[] = {Mode::golden, Mode::fast, Mode::hopper, Mode::blackwell};

ops::Fp8GemmNt call(std::int64_t m, std::int64_t n, std::int64_t k) {
  const std::int64_t blocks = (k + 127) / 128;
  return {.a = filled(DType::f8_e4m3, {m, k}, 1.0),
          .sfa = filled(DType::f32, {m, blocks}, 1.0),
          .b = filled(DType::f8_e4m3, {n, k}, 1.0),
          .sfb = filled(DType::f32, {(n + 127) / 128, blocks}, 1.0)};
}

double first(const ops::Fp8GemmNt& op, Mode mode) {
  return quant::get(ops::run(op, in_mode(mode)).d, 0);
}

TEST(Fp8GemmNt, BlocksAtTheEndOfKAndNHaveScalesOfTheirOwn) {
  auto op = call(2, 136, 144);  // 128 + 16 of K, 128 + 8 of N
  for (std::int64_t i = 0; i < 4; ++i) quant::set(op.sfa, i, static_cast<double>(1 << i));
  for (std::int64_t i = 0; i < 4; ++i) quant::set(op.sfb, i, static_cast<double>(1 << (4 * i)));
  for (const Mode mode : modes) {
    const Tensor d = ops::run(op, in_mode(mode)).d;
    for (std::int64_t i = 0; i < 2; ++i)
      for (const std::int64_t j : {0, 127, 128, 135}) {
        const double left = 1 << (2 * i), right = 1 << (8 * (j / 128));
        EXPECT_EQ(quant::get(d, i * 136 + j), quant::round_to(DType::bf16, left * right * (128 + 2 * 16 * 16)))
            << name(mode) << i << ' ' << j;
      }
  }
}

TEST(Fp8GemmNt, WordsHoldFourExponentsEachFromTheLowByteOn) {
  auto op = call(1, 8, 640);
  op.scale_ue8m0 = true, op.gran_n = 1, op.out_dtype = DType::f32;
  op.sfa = Tensor(DType::i32, {1, 2});
  op.sfb = Tensor(DType::i32, {8, 2});
  const std::uint32_t words[] = {0x82807F7Eu, 0x00000081u};  // 2^-1, 1, 2, 8; 4
  for (std::int64_t i = 0; i < 2; ++i) quant::set_bits(op.sfa, i, words[i]);
  for (std::int64_t i = 0; i < 16; ++i) quant::set_bits(op.sfb, i, 0x7F7F7F7Fu);
  for (const Mode mode : {Mode::golden, Mode::fast, Mode::blackwell}) EXPECT_EQ(first(op, mode), 128 * (0.5 + 1 + 2 + 8 + 4)) << name(mode);
  EXPECT_THROW(first(op, Mode::hopper), Error);
}

TEST(Fp8GemmNt, AnH100ReadsSlicedRowsAsDenseWhereEachRowOfBHasAScale) {
  for (const bool sliced : {false, true}) {
    auto op = call(2, 8, 128);
    if (sliced) op.a = filled(DType::f8_e4m3, {2, 144}, 1.0).slice(1, 0, 128);
    EXPECT_EQ(first(op, Mode::hopper), 128.0) << sliced;  // a scale for 128 rows of b
    op.gran_n = 1, op.out_dtype = DType::f32;
    op.sfb = filled(DType::f32, {8, 1}, 1.0);
    op.c = filled(DType::f32, {2, 8}, 0.0);
    EXPECT_EQ(first(op, Mode::golden), 128.0) << sliced;
    if (sliced) {
      EXPECT_THROW(first(op, Mode::hopper), Error);
    } else {
      EXPECT_EQ(first(op, Mode::hopper), 128.0);
    }
  }
}

/// Rows of 128 that lie 160 apart: row 3 as the kernel reads it begins in the gap behind row 2 and ends within row 3.
TEST(Fp8GemmNt, WhatDenseRowsGiveIsExcusedAndNoOtherNumber) {
  const NamedOp op{"fp8_gemm_nt"};
  const Tensor wide = normal(DType::f8_e4m3, {5, 160}, "a");
  Arguments a;
  a.set("a", wide.slice(1, 0, 128)), a.set("b", normal(DType::f8_e4m3, {8, 128}, "b"));
  a.set("sfa", filled(DType::f32, {5, 1}, 0.5)), a.set("sfb", filled(DType::f32, {8, 1}, 2.0)), a.set("c", filled(DType::f32, {5, 8}, 0.0));
  a.set_attr("gran_n", std::int64_t{1}), a.set_attr("out_dtype", "f32");
  const Tensor b = *a.find("b");
  const oracle::NamedTensors outputs = op.outputs(a, in_mode(Mode::golden));
  const Tensor d = outputs[0].second;
  for (std::int64_t m = 1; m < 5; ++m)
    for (std::int64_t j = 0; j < 8; ++j) {
      double sum = 0;
      for (std::int64_t i = 0; i < 128; ++i) sum += quant::get(wide, m * 128 + i) * quant::get(b, j * 128 + i);
      quant::set(d, m * 8 + j, sum);
    }
  EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, oracle::Outcome::known_defect);
  quant::set(d, 8, 1e6);
  EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, oracle::Outcome::fail) << "more than the gap may hold";
  quant::set(d, 8, 0), quant::set(d, 0, quant::get(d, 0) + 40);
  EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, oracle::Outcome::fail) << "the first row is read as it lies";
}

TEST(Fp8GemmNt, AnH100PromotesEvery128AndAB200Never) {
  auto op = call(1, 8, 512);
  op.gran_n = 1, op.out_dtype = DType::f32;
  op.sfb = filled(DType::f32, {8, 4}, 1.0);
  op.c = filled(DType::f32, {1, 8}, 0.0);
  quant::set(op.a, 0, 256.0);
  for (std::int64_t j = 0; j < 8; ++j) quant::set(op.b, j * 512, 256.0);
  // 13 bits below 65536 nothing of the ones of its own block is left; a B200 keeps 25.
  EXPECT_EQ(first(op, Mode::hopper), 65536.0 + 384);
  EXPECT_EQ(first(op, Mode::blackwell), 65536.0 + 511);
}

TEST(Fp8GemmNt, TheAddendIsAddedToTheWholeSum) {
  auto op = call(2, 8, 128);
  op.gran_n = 1, op.out_dtype = DType::f32;
  op.sfb = filled(DType::f32, {8, 1}, 1.0);
  op.c = tensor_of(DType::f32, {2, 8}, {0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, -128});
  for (const Mode mode : modes) {
    const Tensor d = ops::run(op, in_mode(mode)).d;
    EXPECT_EQ(quant::get(d, 0), 128.5) << name(mode);
    EXPECT_EQ(quant::get(d, 15), 0.0) << name(mode);
  }
}

TEST(Fp8GemmNt, TinyScalesAreNotFlushed) {
  auto op = call(1, 8, 128);
  quant::set(op.sfa, 0, 1e-23);
  quant::set(op.sfb, 0, 1e-23);  // their product is denormal
  const double scale = quant::round_to(DType::f32, static_cast<double>(1e-23f) * static_cast<double>(1e-23f));
  EXPECT_EQ(first(op, Mode::hopper), quant::round_to(DType::bf16, 128 * scale));
}

TEST(Fp8GemmNt, KernelsThatAreNotThereAreRefused) {
  auto op = call(1, 8, 128);
  EXPECT_NO_THROW(first(op, Mode::hopper));
  quant::set(op.sfa, 0, 3.0);
  EXPECT_THROW(first(op, Mode::blackwell), Error);
  op.out_dtype = DType::f32;
  EXPECT_THROW(first(op, Mode::hopper), Error);
  op.gran_n = 64;
  EXPECT_THROW(first(op, Mode::fast), Error);
}

}  // namespace
}  // namespace dodona
