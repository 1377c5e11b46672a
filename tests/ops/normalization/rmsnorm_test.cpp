#include "ops/normalization/rmsnorm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dodona/error.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

Tensor run(const Tensor& input, const Tensor& weight, Mode mode, double eps = 1e-6, const char* weight_order = "fused") {
  return ops::run(ops::Rmsnorm{.input = input, .weight = weight, .output = {}, .eps = eps, .weight_order = weight_order}, in_mode(mode))
      .output;
}

oracle::Verdict judged(const Tensor& input, const Tensor& weight, const Tensor& output) {
  Arguments inputs;
  inputs.set("input", input);
  inputs.set("weight", weight);
  return oracle::judge(registry().at("rmsnorm"), inputs, {{"output", output}}, {});
}

Reference reference_of(const Tensor& input, const Tensor& weight, double eps, const char* weight_order) {
  Arguments inputs;
  inputs.set("input", input);
  inputs.set("weight", weight);
  inputs.set_attr("eps", eps);
  inputs.set_attr("weight_order", std::string(weight_order));
  Reference reference;
  registry().at("rmsnorm").reference(inputs, {}, reference);
  return reference;
}

TEST(Rmsnorm, ValuesAreThoseOfTheFormula) {
  Tensor x(DType::f32, {1, 4}), w(DType::f32, {4});
  const double values[] = {1, -2, 3, -4}, weights[] = {1, 2, -1, 0.5};
  for (int i = 0; i < 4; ++i) quant::set(x, i, values[i]), quant::set(w, i, weights[i]);
  const double factor = 1 / std::sqrt(30.0 / 4 + static_cast<double>(1e-5f));
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const Tensor y = run(x, w, mode, 1e-5);
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(quant::get(y, i), values[i] * factor * weights[i], 1e-6);
  }
}

TEST(Rmsnorm, ABiasIsAddedToTheWeightsInFp32) {
  // A row of one magnitude becomes ones. 1 + 3/512 rounds to 1 + 1/128, 1 + 1/512 to 1.
  const Tensor x = tensor_of(DType::bf16, {1, 4}, {1, 1, -1, 1}), w = tensor_of(DType::bf16, {4}, {3.0 / 512, -1.0, 2.0, 1.0 / 512});
  const double expected[] = {1 + 1.0 / 128, 0.0, -3.0, 1.0};
  for (const Mode mode : all_modes) {
    const Tensor y = ops::run(ops::Rmsnorm{.input = x, .weight = w, .output = {}, .eps = 0.0, .weight_bias = 1.0}, in_mode(mode)).output;
    for (int i = 0; i < 4; ++i) EXPECT_EQ(quant::get(y, i), expected[i]);
  }
  EXPECT_THROW(ops::run(ops::Rmsnorm{.input = x, .weight = w, .output = {}, .weight_bias = 2.0}, in_mode(Mode::fast)), Error);
  EXPECT_THROW(ops::run(ops::Rmsnorm{.input = x, .weight = w, .output = {}, .weight_bias = 1.0, .kernel = "triton"}, in_mode(Mode::hopper)),
               Error);
}

TEST(Rmsnorm, ZeroRowGivesZerosOfItsSignAndNaNWithoutEps) {
  const Tensor w = filled(DType::bf16, {40}, 1.5);
  for (const Mode mode : all_modes) {
    EXPECT_EQ(quant::get_bits(run(filled(DType::bf16, {1, 40}, 0.0), w, mode), 39), 0u);
    EXPECT_EQ(quant::get_bits(run(filled(DType::bf16, {1, 40}, -0.0), w, mode), 39), 0x8000u);
    EXPECT_TRUE(std::isnan(quant::get(run(filled(DType::bf16, {1, 40}, 0.0), w, mode, 0.0), 39)));
  }
}

TEST(Rmsnorm, AWeightOfMinusZeroIsAddedToABiasOfZeroOrNot) {
  const Tensor x = tensor_of(DType::bf16, {1, 4}, {1, -2, 3, -4}), w = tensor_of(DType::bf16, {4}, {-0.0, -0.0, 0.0, 1.0});
  const Tensor y = run(x, w, Mode::hopper), other = run(x, w, Mode::fast);
  EXPECT_EQ(quant::get_bits(y, 0), 0u);
  EXPECT_EQ(quant::get_bits(y, 1), 0x8000u);
  EXPECT_EQ(quant::get_bits(other, 0), 0x8000u);
  EXPECT_EQ(judged(x, w, y).failing(), 0);
  EXPECT_EQ(judged(x, w, other).failing(), 0);
  quant::set(y, 1, 0x1p-120);
  EXPECT_EQ(judged(x, w, y).failing(), 1);
  quant::set(other, 2, -0.0);  // a weight of +0 leaves nothing open
  EXPECT_EQ(judged(x, w, other).failing(), 1);
}

TEST(Rmsnorm, InfinityGivesNaNAtItselfAndZeroElsewhere) {
  Tensor x = filled(DType::bf16, {2, 40}, -1.0);
  quant::set(x, 7, infinity);
  for (const Mode mode : all_modes) {
    const Tensor y = run(x, filled(DType::bf16, {40}, 1.0), mode);
    EXPECT_TRUE(std::isnan(quant::get(y, 7)));
    EXPECT_EQ(quant::get_bits(y, 8), 0x8000u);
    EXPECT_EQ(quant::get(y, 47), -1.0);
  }
}

TEST(Rmsnorm, NaNFillsItsRowAndNoOther) {
  Tensor x = filled(DType::f16, {2, 40}, 2.0);
  quant::set(x, 7, std::nan(""));
  for (const Mode mode : all_modes) {
    const Tensor y = run(x, filled(DType::f16, {40}, 1.0), mode);
    for (int i = 0; i < 40; ++i) EXPECT_TRUE(std::isnan(quant::get(y, i)));
    EXPECT_EQ(quant::get(y, 40), 1.0);
  }
}

TEST(Rmsnorm, SumOfSquaresBeyondFp32GivesARowOfZeros) {
  for (const Mode mode : all_modes)
    EXPECT_EQ(quant::get(run(filled(DType::bf16, {1, 64}, 4e18), filled(DType::bf16, {64}, 1.0), mode), 5), 0.0);
}

TEST(Rmsnorm, SumOfSquaresAtTheEdgeOfFp32IsOpenBetweenZeroAndTheFactor) {
  // 64 squares of 2^61 are 2^128, one half unit above the largest finite number.
  const Tensor x = filled(DType::f32, {1, 64}, 0x1p61), w = filled(DType::f32, {64}, 1.0);
  EXPECT_EQ(judged(x, w, filled(DType::f32, {1, 64}, 0.0)).failing(), 0);
  EXPECT_EQ(judged(x, w, filled(DType::f32, {1, 64}, 1.0)).failing(), 0);
  EXPECT_EQ(judged(x, w, filled(DType::f32, {1, 64}, -1.0)).failing(), 64);
}

TEST(Rmsnorm, WeightRoundedApartIsToldFromWeightFused) {
  const Tensor x = normal(DType::bf16, {4, 512}, "x"), w = normal(DType::bf16, {512}, "w");
  EXPECT_EQ(judged(x, w, run(x, w, Mode::fast)).outcome, oracle::Outcome::pass);
  EXPECT_GT(judged(x, w, run(x, w, Mode::fast, 1e-6, "rounded")).failing(), 100);
}

TEST(Rmsnorm, MeanOverOneElementLessIsCaught) {
  const Tensor x = normal(DType::bf16, {8, 7168}, "x"), w = filled(DType::bf16, {7168}, 1.0);
  Tensor wrong = run(x, w, Mode::golden);
  for (std::int64_t t = 0; t < 8; ++t) {
    double sum = 0;
    for (std::int64_t h = 0; h < 7168; ++h) sum += quant::get(x, t * 7168 + h) * quant::get(x, t * 7168 + h);
    for (std::int64_t h = 0; h < 7168; ++h) quant::set(wrong, t * 7168 + h, quant::get(x, t * 7168 + h) / std::sqrt(sum / 7167 + 1e-6));
  }
  EXPECT_GT(judged(x, w, wrong).failing(), 20);
}

TEST(Rmsnorm, RoundedRecipeLeavesOnlyInnerTiesOpen) {
  const Reference reference = reference_of(normal(DType::bf16, {4, 512}, "x"), normal(DType::bf16, {512}, "w"), 1e-6, "rounded");
  std::int64_t open = 0;
  for (const double slack : reference.find("output")->slack) open += slack > 0;
  EXPECT_LT(open, 20);
}

TEST(Rmsnorm, RowOfSquaresThatMayBeFlushedIsNotComparedWithoutEps) {
  const Tensor x = filled(DType::bf16, {1, 64}, 1e-30), w = filled(DType::bf16, {64}, 1.0);
  EXPECT_EQ(reference_of(x, w, 0.0, "fused").find("output")->unspecified.front(), 1);
  EXPECT_EQ(reference_of(x, w, 1e-6, "fused").find("output")->unspecified.front(), 0);
}

TEST(Rmsnorm, StridedRowsGiveTheBitsOfContiguousOnes) {
  const Tensor wide = normal(DType::bf16, {5, 2112}, "x"), w = normal(DType::bf16, {1536}, "w");
  const Tensor slice = wide.slice(1, 0, 1536);
  for (const Mode mode : all_modes) EXPECT_TRUE(same_bits(run(slice, w, mode), run(slice.clone(), w, mode)));
}

TEST(Rmsnorm, OutputInTheMemoryOfInputGivesTheSameBits) {
  const Tensor x = normal(DType::bf16, {3, 200}, "x"), w = normal(DType::bf16, {200}, "w");
  for (const Mode mode : all_modes) {
    const Tensor apart = run(x, w, mode), shared = x.clone();
    ops::run(ops::Rmsnorm{.input = shared, .weight = w, .output = shared}, in_mode(mode));
    EXPECT_TRUE(same_bits(apart, shared));
  }
}

TEST(Rmsnorm, LargeOutputsHaveTheBitsOfSmallOnes) {
  // Large enough to be written past the caches; an odd width leaves most rows without the alignment for it.
  for (const std::int64_t width : {7168, 7169}) {
    const Tensor x = normal(DType::bf16, {320, width}, "x"), w = normal(DType::bf16, {width}, "w");
    const Tensor y = run(x, w, Mode::fast);
    for (const std::int64_t row : {0, 1, 319})
      EXPECT_TRUE(same_bits(y.slice(0, row, row + 1), run(x.slice(0, row, row + 1), w, Mode::fast)));
  }
}

TEST(Rmsnorm, HopperModeRefusesWhatNoKernelOfItDoes) {
  const Tensor x = filled(DType::bf16, {1, 64}, 1.0), w = filled(DType::bf16, {64}, 1.0);
  EXPECT_THROW(run(x, w, Mode::hopper, 1e-6, "rounded"), Error);
  EXPECT_THROW(run(filled(DType::f32, {1, 64}, 1.0), filled(DType::f32, {64}, 1.0), Mode::hopper), Error);
}

}  // namespace
}  // namespace dodona
