// Rules of matmul_persistent, log_softmax and mean_dim.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dodona/error.h"
#include "ops/gemm/matmul_persistent.h"
#include "ops/normalization/log_softmax.h"
#include "ops/normalization/mean_dim.h"
#include "quant/hopper/triton.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

TEST(MatmulPersistent, RowsAreTheSameWhateverTheBatchAndTheStrides) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    const Tensor a = normal(type, {130, 72}, "a"), b = normal(type, {72, 24}, "b"), bias = normal(type, {24}, "bias");
    const Tensor turned = b.transpose(0, 1).clone().transpose(0, 1);
    for (const Mode mode : all_modes) {
      const Tensor all = ops::run(ops::MatmulPersistent{.a = a, .b = b, .bias = bias, .c = {}}, in_mode(mode)).c;
      for (const std::int64_t row : {0, 63, 127, 129}) {
        const Tensor one =
            ops::run(ops::MatmulPersistent{.a = a.slice(0, row, row + 1), .b = turned, .bias = bias, .c = {}}, in_mode(mode)).c;
        EXPECT_TRUE(same_bits(one, all.slice(0, row, row + 1))) << name(mode) << ' ' << row;
      }
    }
  }
}

TEST(MatmulPersistent, TheBiasIsAddedBeforeTheRoundingOrBehindIt) {
  // 1 + 2^-8 lies between two numbers of bf16 and goes to 1; with another 2^-8 it is one.
  const Tensor a = tensor_of(DType::bf16, {1, 2}, {1, 0x1p-8}), b = filled(DType::bf16, {2, 8}, 1.0),
               bias = filled(DType::bf16, {8}, 0x1p-8);
  for (const Mode mode : all_modes) {
    ops::MatmulPersistent op{.a = a, .b = b, .bias = bias, .c = {}};
    EXPECT_EQ(quant::get(ops::run(op, in_mode(mode)).c, 0), 1 + 0x1p-7) << name(mode);
    op.kernel = "deep_gemm";
    EXPECT_EQ(quant::get(ops::run(op, in_mode(mode)).c, 0), 1.0) << name(mode);
  }
}

TEST(MatmulPersistent, Fp32LosesItsLow13BitsUnlessAskedNotTo) {
  const Tensor a = tensor_of(DType::f32, {1, 1}, {1 + 0x1p-10 + 0x1p-11}), b = filled(DType::f32, {1, 8}, 1.0);
  for (const Mode mode : all_modes)
    EXPECT_EQ(quant::get(ops::run(ops::MatmulPersistent{.a = a, .b = b, .bias = {}, .c = {}}, in_mode(mode)).c, 0), 1 + 0x1p-10)
        << name(mode);
  ops::MatmulPersistent whole{.a = a, .b = b, .bias = {}, .c = {}};
  whole.input_precision = "ieee";
  EXPECT_EQ(quant::get(ops::run(whole, in_mode(Mode::golden)).c, 0), 1 + 0x1p-10 + 0x1p-11);
  EXPECT_THROW(ops::run(whole, in_mode(Mode::hopper)), Error);
}

TEST(MatmulPersistent, OfOneProductTheSumStartsFromTheBiasAndIsCut) {
  // 1 + 1.5 units of its last place: rounded 2 of them, cut 1.
  for (const std::int64_t k : {1, 2}) {
    Tensor a = filled(DType::f32, {1, k}, 0.0), b = filled(DType::f32, {k, 8}, 0.0);
    quant::set(a, 0, 1.0);
    for (std::int64_t j = 0; j < 8; ++j) quant::set(b, j, 3 * 0x1p-24);
    ops::MatmulPersistent op{.a = a, .b = b, .bias = filled(DType::f32, {8}, 1.0), .c = {}};
    EXPECT_EQ(quant::get(ops::run(op, in_mode(Mode::hopper)).c, 0), k == 1 ? 1 + 0x1p-23 : 1 + 0x1p-22) << k;
    EXPECT_EQ(quant::get(ops::run(op, in_mode(Mode::golden)).c, 0), 1 + 0x1p-22) << k;
  }
}

TEST(LogSoftmax, OfEqualLogitsIsTheLogarithmOfTheirNumber) {
  for (const Mode mode : all_modes)
    for (const std::int64_t n : {1, 7, 1024, 3000}) {
      const Tensor out = ops::run(ops::LogSoftmax{.input = filled(DType::f32, {2, n}, 3.5), .output = {}}, in_mode(mode)).output;
      EXPECT_NEAR(quant::get(out, n), -std::log(static_cast<double>(n)), 1e-6) << name(mode) << ' ' << n;
    }
}

TEST(LogSoftmax, MinusInfinityStaysAndAnInfiniteMaximumOrNanIsNan) {
  const Tensor x = tensor_of(DType::bf16, {3, 2}, {0, -infinity, infinity, 0, std::nan(""), 1});
  for (const Mode mode : all_modes) {
    const Values out = values_of(ops::run(ops::LogSoftmax{.input = x, .output = {}}, in_mode(mode)).output);
    EXPECT_EQ(out[0], 0.0) << name(mode);
    EXPECT_EQ(out[1], -infinity) << name(mode);
    for (int i = 2; i < 6; ++i) EXPECT_TRUE(std::isnan(out[static_cast<std::size_t>(i)])) << name(mode) << i;
  }
  EXPECT_THROW(ops::run(ops::LogSoftmax{.input = x, .output = {}, .dim = 0}, in_mode(Mode::fast)), Error);
}

TEST(MeanDim, IsOfTheMiddleDimension) {
  const Tensor x = tensor_of(DType::f32, {2, 3, 2}, {1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60});
  for (const Mode mode : all_modes)
    EXPECT_EQ(values_of(ops::run(ops::MeanDim{.input = x, .output = {}}, in_mode(mode)).output), (Values{2, 20, 5, 50})) << name(mode);
}

TEST(MeanDim, BesideAnInfinityNumbersMayAddUpToTheOther) {
  // Two times 60000 is beyond f16, and with -inf NaN: an H200's mean.
  const NamedOp mean{"mean_dim"};
  for (const bool overflows : {true, false}) {
    Arguments inputs = mean.case_of("M=1 N=3 K=1 --dtype input=f16");
    const Tensor& x = *inputs.find("input");
    quant::set(x, 0, overflows ? 60000.0 : 1.0);
    quant::set(x, 1, overflows ? 60000.0 : 1.0);
    quant::set(x, 2, -std::numeric_limits<double>::infinity());
    const auto& op = registry().at("mean_dim");
    Arguments copied = oracle::runnable(op, inputs);
    Reference reference;
    op.reference(copied, in_mode(Mode::golden), reference);
    EXPECT_EQ(reference.find("output")->unspecified[0], overflows ? 1 : 0);
  }
}

TEST(MeanDim, HopperAddsInTheTypeOfTheElements) {
  // A thread adds 8 neighbours: 2048 + 1 + 1... stays 2048 in f16.
  Tensor x = filled(DType::f16, {1, 16, 1}, 0.0);
  quant::set(x, 0, 2048.0);
  for (std::int64_t i = 1; i < 8; ++i) quant::set(x, i, 1.0);
  EXPECT_EQ(quant::get(ops::run(ops::MeanDim{.input = x, .output = {}}, in_mode(Mode::hopper)).output, 0), 128.0);
  EXPECT_EQ(quant::get(ops::run(ops::MeanDim{.input = x, .output = {}}, in_mode(Mode::golden)).output, 0),
            quant::round_to(DType::f16, 2055.0 / 16));
}

TEST(TritonArithmetic, DivisionScalesWhereTheReciprocalWouldBeDenormal) {
  namespace tri = quant::hopper::triton;
  EXPECT_EQ(tri::div(0x1p127f, 0x1p127f), 1.0f);
  EXPECT_EQ(tri::div(0x1p-140f, 0x1p-140f), 1.0f);
  EXPECT_EQ(tri::div(1.0f, infinity), 0.0f);
  EXPECT_TRUE(std::isnan(tri::div(0.0f, 0.0f)));
  EXPECT_EQ(tri::log(1.0f), 0.0f);
  EXPECT_EQ(tri::log(0.0f), -infinity);
  EXPECT_NEAR(tri::log(10.0f), 2.302585, 1e-6);
  EXPECT_NEAR(tri::log(0x1p-140f), -140 * 0.69314718, 1e-4);
}

}  // namespace
}  // namespace dodona
