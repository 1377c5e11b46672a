// Rules of dsv3_fused_a_gemm.
#include "ops/gemm/dsv3_fused_a_gemm.h"

#include <gtest/gtest.h>

#include "dodona/error.h"
#include "quant/element.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using helpers::in_mode;

ops::Dsv3FusedAGemm call(std::int64_t tokens) {
  return {.mat_a = Tensor(DType::bf16, {tokens, 7168}), .mat_b = Tensor(DType::bf16, {2112, 7168}).transpose(0, 1), .output = {}};
}

TEST(Dsv3FusedAGemm, TakesOneToSixteenTokensAndAColumnMajorWeight) {
  EXPECT_NO_THROW(ops::run(call(16), in_mode(Mode::fast)));
  EXPECT_THROW(ops::run(call(0), in_mode(Mode::fast)), Error);
  EXPECT_THROW(ops::run(call(17), in_mode(Mode::fast)), Error);
  auto op = call(1);
  op.mat_b = Tensor(DType::bf16, {7168, 2112});
  EXPECT_THROW(ops::run(op, in_mode(Mode::fast)), Error);
  op.mat_b = Tensor(DType::bf16, {2112, 7168});
  EXPECT_THROW(ops::run(op, in_mode(Mode::fast)), Error);
}

TEST(Dsv3FusedAGemm, QuartersOfKAreSummedApartInHopperMode) {
  const auto op = call(2);
  const auto weigh = [&](std::int64_t k, double value) {
    quant::set_bits(op.mat_b, k * 2112 + 2111, 0), quant::set(op.mat_b, k * 2112 + 2111, value);
  };
  for (std::int64_t k = 0; k < 7168; ++k) quant::set(op.mat_a, 7168 + k, 1.0);
  // 2^25 swallows a 1 of its own quarter and a 2 is kept; ones of another quarter add up to 2 first.
  weigh(0, 0x1p25), weigh(16, 1.0), weigh(32, 1.0);
  const auto last = [&](Mode mode) {
    auto wide = op;
    return quant::get(ops::run(wide, in_mode(mode)).output, 2 * 2112 - 1);
  };
  // bf16 keeps eight bits: the difference is made visible by taking 2^25 away in the last quarter.
  weigh(7167, -0x1p25);
  EXPECT_EQ(last(Mode::hopper), 0.0);
  EXPECT_EQ(last(Mode::golden), 2.0);
  weigh(16, 0.0), weigh(32, 0.0), weigh(1792, 1.0), weigh(1808, 3.0);
  EXPECT_EQ(last(Mode::hopper), 4.0);
}

TEST(Dsv3FusedAGemm, AFlushedSumIsPlusZeroInHopperMode) {
  const auto op = call(1);
  for (const std::int64_t quarter : {0, 1792, 3584, 5376}) {
    quant::set(op.mat_a, quarter, -0x1p-130), quant::set(op.mat_a, quarter + 1, -1.0);
    quant::set(op.mat_b, quarter * 2112, 1.0), quant::set(op.mat_b, (quarter + 1) * 2112 + 1, 0x1p-126);
  }
  const auto sums = [&](Mode mode) { return ops::run(ops::Dsv3FusedAGemm(op), in_mode(mode)).output; };
  EXPECT_EQ(quant::get_bits(sums(Mode::hopper), 0), 0u);
  EXPECT_EQ(quant::get(sums(Mode::hopper), 1), -0x1p-124);  // is not flushed
  EXPECT_EQ(quant::get(sums(Mode::golden), 0), -0x1p-128);
}

TEST(Dsv3FusedAGemm, EveryColumnAndTokenIsItsOwn) {
  const auto op = call(3);
  for (std::int64_t t = 0; t < 3; ++t) quant::set(op.mat_a, t * 7168 + 5000 + t, 1.0);
  for (std::int64_t t = 0; t < 3; ++t)
    for (std::int64_t n = 0; n < 2112; ++n) quant::set(op.mat_b, (5000 + t) * 2112 + n, static_cast<double>((n + 11 * t) % 256));
  for (const Mode mode : {Mode::fast, Mode::golden, Mode::hopper}) {
    const Tensor out = ops::run(op, in_mode(mode)).output;
    for (std::int64_t i = 0; i < out.elements(); ++i)
      ASSERT_EQ(quant::get(out, i), static_cast<double>((i % 2112 + 11 * (i / 2112)) % 256)) << name(mode);
  }
}

}  // namespace
}  // namespace dodona
