#include "ops/normalization/fused_add_rmsnorm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dodona/error.h"
#include "ops/normalization/rmsnorm.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

/// Works on copies; returns what became of input and residual.
ops::FusedAddRmsnorm run(const Tensor& input, const Tensor& residual, const Tensor& weight, Mode mode, const char* normalize = "unrounded",
                         const char* weight_order = "fused") {
  return ops::run(
      ops::FusedAddRmsnorm{
          .input = input.clone(), .residual = residual.clone(), .weight = weight, .normalize = normalize, .weight_order = weight_order},
      in_mode(mode));
}

oracle::Verdict judged(const Tensor& input, const Tensor& residual, const Tensor& weight, const ops::FusedAddRmsnorm& actual) {
  Arguments inputs;
  inputs.set("input", input);
  inputs.set("residual", residual);
  inputs.set("weight", weight);
  return oracle::judge(registry().at("fused_add_rmsnorm"), inputs, {{"input", actual.input}, {"residual", actual.residual}}, {});
}

TEST(FusedAddRmsnorm, ResidualBecomesTheFp32SumRoundedOnce) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    const Tensor x = normal(type, {3, 77}, "x"), r = normal(type, {3, 77}, "r"), w = normal(type, {77}, "w");
    for (const Mode mode : all_modes) {
      const Tensor sum = run(x, r, w, mode).residual;
      for (std::int64_t i = 0; i < sum.elements(); ++i)
        EXPECT_EQ(quant::get(sum, i), quant::round_to(type, static_cast<float>(quant::get(x, i)) + static_cast<float>(quant::get(r, i))));
    }
  }
}

TEST(FusedAddRmsnorm, NothingIsOpenAboutTheResidualButFlushedDenormals) {
  Arguments inputs;
  Tensor x = filled(DType::bf16, {1, 32}, 1.0), r = filled(DType::bf16, {1, 32}, 0x1p-9);
  quant::set(x, 3, 1e-39), quant::set(r, 3, 0.0);
  quant::set(x, 4, 0x1p-126), quant::set(r, 4, -0x1.8p-127);
  inputs.set("input", x);
  inputs.set("residual", r);
  inputs.set("weight", filled(DType::bf16, {32}, 1.0));
  Reference reference;
  registry().at("fused_add_rmsnorm").reference(inputs, {}, reference);
  const auto& slack = reference.find("residual")->slack;
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(slack[i] > 0, i == 3 || i == 4) << i;
}

TEST(FusedAddRmsnorm, TheUnroundedSumIsNormalised) {
  const Tensor x = normal(DType::bf16, {4, 512}, "x"), r = normal(DType::bf16, {4, 512}, "r"), w = normal(DType::bf16, {512}, "w");
  for (const Mode mode : all_modes) EXPECT_EQ(judged(x, r, w, run(x, r, w, mode)).outcome, oracle::Outcome::pass);
  const oracle::Verdict rounded_first = judged(x, r, w, run(x, r, w, Mode::fast, "rounded"));
  EXPECT_GT(rounded_first.outputs[0].failing, 100);
  EXPECT_EQ(rounded_first.outputs[1].failing, 0);
}

TEST(FusedAddRmsnorm, NormalizeRoundedIsRmsnormOfTheStoredResidual) {
  const Tensor x = normal(DType::bf16, {4, 512}, "x"), r = normal(DType::bf16, {4, 512}, "r"), w = normal(DType::bf16, {512}, "w");
  for (const char* weight_order : {"fused", "rounded"})
    for (const Mode mode : {Mode::golden, Mode::fast}) {
      const ops::FusedAddRmsnorm fused = run(x, r, w, mode, "rounded", weight_order);
      const Tensor apart =
          ops::run(ops::Rmsnorm{.input = fused.residual, .weight = w, .output = {}, .weight_order = weight_order}, in_mode(mode)).output;
      EXPECT_TRUE(same_bits(fused.input, apart)) << weight_order;
    }
}

TEST(FusedAddRmsnorm, InfinityMinusInfinityMakesARowOfNaN) {
  Tensor x = filled(DType::bf16, {2, 40}, 1.0), r = filled(DType::bf16, {2, 40}, 1.0);
  quant::set(x, 5, infinity), quant::set(r, 5, -infinity);
  for (const Mode mode : all_modes) {
    const ops::FusedAddRmsnorm y = run(x, r, filled(DType::bf16, {40}, 1.0), mode);
    for (int i = 0; i < 40; ++i) EXPECT_TRUE(std::isnan(quant::get(y.input, i)));
    EXPECT_TRUE(std::isnan(quant::get(y.residual, 5)));
    EXPECT_EQ(quant::get(y.residual, 6), 2.0);
    EXPECT_EQ(quant::get(y.input, 40), 1.0);
  }
}

TEST(FusedAddRmsnorm, SumThatVanishesInTheResidualStillCountsInTheNorm) {
  // 2^-8 is half of the last place of 1 in bf16: the residual stays 1 (ties to even), the normalised sum does not.
  Tensor x = filled(DType::bf16, {1, 64}, 0.0), r = filled(DType::bf16, {1, 64}, 1.0);
  quant::set(x, 0, 0x1p-8);
  for (const Mode mode : all_modes) {
    const ops::FusedAddRmsnorm y = run(x, r, filled(DType::bf16, {64}, 524.0), mode);
    EXPECT_EQ(quant::get(y.residual, 0), 1.0);
    EXPECT_EQ(quant::get(y.input, 0), 528.0);
    EXPECT_EQ(quant::get(y.input, 63), 524.0);
  }
}

TEST(FusedAddRmsnorm, InputAndResidualMayNotShareMemory) {
  const Tensor x = filled(DType::bf16, {2, 64}, 1.0);
  const Error error =
      error_from([&] { ops::run(ops::FusedAddRmsnorm{.input = x, .residual = x, .weight = filled(DType::bf16, {64}, 1.0)}, {}); });
  EXPECT_EQ(error.code(), ErrorCode::bad_alias);
}

TEST(FusedAddRmsnorm, DialectsRoundWhatTheirUpstreamsRound) {
  const auto value = [](const char* dialect, const char* attribute) {
    for (const AttrSpec& spec : registry().at("fused_add_rmsnorm").schema().attrs) {
      if (spec.name != attribute) continue;
      for (const auto& [name, chosen] : spec.dialect_values)
        if (name == dialect) return to_string(chosen);
      return to_string(spec.default_value);
    }
    return std::string();
  };
  EXPECT_EQ(value("sglang", "normalize"), "unrounded");
  EXPECT_EQ(value("flashinfer", "normalize"), "unrounded");
  EXPECT_EQ(value("trtllm", "normalize"), "rounded");
  EXPECT_EQ(value("trtllm", "weight_order"), "fused");
  EXPECT_EQ(value("deepseek", "normalize"), "rounded");
  EXPECT_EQ(value("deepseek", "weight_order"), "rounded");
}

TEST(FusedAddRmsnorm, HopperModeRefusesWhatNoKernelOfItDoes) {
  const Tensor x = filled(DType::bf16, {1, 64}, 1.0), w = filled(DType::bf16, {64}, 1.0);
  EXPECT_THROW(run(x, x, w, Mode::hopper, "rounded"), Error);
  EXPECT_THROW(run(x, x, w, Mode::hopper, "unrounded", "rounded"), Error);
}

}  // namespace
}  // namespace dodona
