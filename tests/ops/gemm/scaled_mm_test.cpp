// int8_scaled_mm and fp8_scaled_mm: what their scales and their bias are rounded to, and what their sums keep.
#include <gtest/gtest.h>

#include <cmath>

#include "dodona/error.h"
#include "ops/gemm/fp8_scaled_mm.h"
#include "ops/gemm/int8_scaled_mm.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

/// M x K and K x N of `value`, the second column-major; scales of 1.
template <class Op>
Op call(DType code, std::int64_t m, std::int64_t n, std::int64_t k, double value = 0) {
  Op op;
  op.mat_a = filled(code, {m, k}, value);
  op.mat_b = filled(code, {n, k}, value).transpose(0, 1);
  op.scales_a = filled(DType::f32, {m}, 1);
  op.scales_b = filled(DType::f32, {n}, 1);
  return op;
}

TEST(Int8ScaledMm, EachRowAndEachColumnHasItsScale) {
  auto op = call<ops::Int8ScaledMm>(DType::i8, 3, 24, 48, 1);
  for (std::int64_t i = 0; i < 3; ++i) quant::set(op.scales_a, i, static_cast<double>(i + 1));
  for (std::int64_t j = 0; j < 24; ++j) quant::set(op.scales_b, j, static_cast<double>(2 * j + 1) / 8);
  for (const Mode mode : all_modes) {
    const Tensor out = ops::run(op, in_mode(mode)).out;
    for (std::int64_t e = 0; e < 72; ++e)
      EXPECT_EQ(quant::get(out, e), quant::round_to(DType::bf16, 48.0 * static_cast<double>((e / 24 + 1) * (2 * (e % 24) + 1)) / 8)) << e;
  }
}

TEST(Int8ScaledMm, TheBiasIsAddedBeforeTheProductWithTheLastScaleIsRounded) {
  auto op = call<ops::Int8ScaledMm>(DType::i8, 1, 8, 16);
  quant::set(op.mat_a, 0, 5);
  for (std::int64_t j = 0; j < 8; ++j) quant::set(op.mat_b, j, 1);  // k = 0
  // 5 * scale takes 25 bits, and fp32 drops the last; with it the sum lies above the middle between two numbers of bf16.
  quant::set(op.scales_a, 0, 3361997 * 0x1p-24);
  op.bias = filled(DType::bf16, {8}, -0.5);
  for (const Mode mode : all_modes) EXPECT_EQ(quant::get(ops::run(op, in_mode(mode)).out, 7), 0.50390625) << name(mode);
}

TEST(Int8ScaledMm, ASumBeyondFp32IsRoundedBeforeItIsScaled) {
  auto op = call<ops::Int8ScaledMm>(DType::i8, 1, 8, 1056);
  op.bias = filled(DType::bf16, {8}, -0x1p24);
  const auto put = [&](std::int64_t k, double a, double b) {
    quant::set(op.mat_a, k, a);
    for (std::int64_t j = 0; j < 8; ++j) quant::set(op.mat_b, k * 8 + j, b);
  };
  for (std::int64_t k = 0; k < 1040; ++k) put(k, 127, 127);
  put(1040, 127, 24);
  put(1041, 9, 1);  // 2^24 + 1 in all
  EXPECT_EQ(quant::get(ops::run(op, in_mode(Mode::golden)).out, 0), 1.0);
  EXPECT_EQ(quant::get(ops::run(op, in_mode(Mode::fast)).out, 0), 0.0);
  EXPECT_EQ(quant::get(ops::run(op, in_mode(Mode::hopper)).out, 0), 0.0);
}

TEST(Int8ScaledMm, LongRowsOfExtremesDoNotOverflow) {
  auto op = call<ops::Int8ScaledMm>(DType::i8, 2, 8, 131056, -128);
  for (const Mode mode : all_modes) EXPECT_EQ(quant::get(ops::run(op, in_mode(mode)).out, 9), 0x1p31) << name(mode);  // rounded to bf16
  op.mat_a = filled(DType::i8, {2, 131072}, 0);
  op.mat_b = filled(DType::i8, {8, 131072}, 0).transpose(0, 1);
  EXPECT_THROW(ops::run(op, in_mode(Mode::fast)), Error);
}

TEST(Fp8ScaledMm, OneAccumulatorTakesAllOfK) {
  auto op = call<ops::Fp8ScaledMm>(DType::f8_e4m3, 1, 8, 4096, 1.0);
  quant::set(op.mat_a, 0, 256.0);
  for (std::int64_t j = 0; j < 8; ++j) quant::set(op.mat_b, j, 256.0);
  op.scales_b = filled(DType::f32, {8}, 0x1p-4);
  const auto first = [&](Mode mode) { return quant::get(ops::run(op, in_mode(mode)).out, 0); };
  EXPECT_EQ(first(Mode::golden), quant::round_to(DType::bf16, (65536.0 + 4095) / 16));
  EXPECT_EQ(first(Mode::fast), quant::round_to(DType::bf16, (65536.0 + 4095) / 16));
  EXPECT_EQ(first(Mode::hopper), 65536.0 / 16);
  Arguments inputs;
  for (const auto& [name, tensor] :
       {std::pair("mat_a", op.mat_a), {"mat_b", op.mat_b}, {"scales_a", op.scales_a}, {"scales_b", op.scales_b}})
    inputs.set(name, tensor);
  const oracle::NamedTensors never_promoted{{"out", filled(DType::bf16, {1, 8}, 4096.0)}};
  EXPECT_EQ((NamedOp{"fp8_scaled_mm"}.failing(inputs, never_promoted)), 0);
  inputs.set_attr("accumulator", std::string("fp32"));
  EXPECT_EQ((NamedOp{"fp8_scaled_mm"}.failing(inputs, never_promoted)), 8);
}

TEST(Fp8ScaledMm, ABiasOfAnotherTypeIsRefused) {
  auto op = call<ops::Fp8ScaledMm>(DType::f8_e4m3, 1, 8, 16, 1.0);
  op.bias = filled(DType::f16, {8}, 1);
  EXPECT_THROW(ops::run(op, in_mode(Mode::fast)), Error);
  op.out_dtype = DType::f16;
  for (const Mode mode : all_modes) EXPECT_EQ(quant::get(ops::run(op, in_mode(mode)).out, 0), 17.0) << name(mode);
}

}  // namespace
}  // namespace dodona
