// Rules of silu_and_mul, and those that the three gated activations share.
#include "ops/activation/silu_and_mul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dodona/error.h"
#include "ops/activation/gelu_and_mul.h"
#include "ops/activation/gelu_tanh_and_mul.h"
#include "tests/ops/activation/gelu.h"

namespace dodona {
namespace {

using namespace helpers;

Tensor normal(DType type, const Dims& shape) {
  Tensor t(type, shape);
  oracle::fill(t, Role::values, 0, "normal", 1, "input");
  return t;
}

template <class Op>
Tensor run(const Tensor& input, Mode mode, const char* gate_order = "gate_up", const char* round_activation = "no") {
  return ops::run(Op{.input = input, .out = {}, .gate_order = gate_order, .round_activation = round_activation}, in_mode(mode)).out;
}
double silu_at(double gate, double up, Mode mode, DType type = DType::bf16) {
  return quant::get(run<ops::SiluAndMul>(row_of(type, gate, up), mode), 0);
}

oracle::Verdict judged(const char* op, const Tensor& input, const Tensor& out) {
  Arguments inputs;
  inputs.set("input", input);
  return oracle::judge(registry().at(op), inputs, {{"out", out}}, {});
}

/// The halves exchanged.
Tensor swapped(const Tensor& input) {
  Tensor other(input.dtype(), input.shape());
  const std::int64_t width = input.size(-1);
  for (std::int64_t i = 0; i < input.elements(); ++i)
    quant::set_bits(other, i / width * width + (i % width + width / 2) % width, quant::get_bits(input, i));
  return other;
}

TEST(SiluAndMul, GateIsTheFirstHalf) {
  for (const Mode mode : all_modes) {
    EXPECT_NEAR(silu_at(2.0, 1.0, mode), 2 / (1 + std::exp(-2.0)), 4e-3);
    EXPECT_NEAR(silu_at(1.0, 2.0, mode), 2 / (1 + std::exp(-1.0)), 4e-3);
  }
}

TEST(SiluAndMul, ExchangedHalvesAreCaught) {
  const Tensor input = normal(DType::bf16, {2, 512});
  EXPECT_EQ(judged("silu_and_mul", input, run<ops::SiluAndMul>(input, Mode::fast)).outcome, oracle::Outcome::pass);
  EXPECT_GT(judged("silu_and_mul", input, run<ops::SiluAndMul>(swapped(input), Mode::fast)).failing(), 400);
}

TEST(SiluAndMul, RoundedActivationIsToldFromUnrounded) {
  const Tensor input = normal(DType::bf16, {2, 512});
  EXPECT_GT(judged("silu_and_mul", input, run<ops::SiluAndMul>(input, Mode::fast, "gate_up", "yes")).failing(), 50);
}

TEST(SiluAndMul, ZerosKeepTheirSigns) {
  for (const Mode mode : all_modes) {
    EXPECT_FALSE(std::signbit(silu_at(0.0, 1.0, mode)));
    EXPECT_TRUE(std::signbit(silu_at(-0.0, 1.0, mode)));
    EXPECT_TRUE(std::signbit(silu_at(0.0, -1.0, mode)));
  }
}

TEST(SiluAndMul, InfiniteGates) {
  for (const Mode mode : all_modes) {
    EXPECT_TRUE(std::isnan(silu_at(-infinity, 1.0, mode)));
    EXPECT_EQ(silu_at(infinity, 2.0, mode), infinity);
    EXPECT_EQ(silu_at(infinity, -2.0, mode), -infinity);
    EXPECT_TRUE(std::isnan(silu_at(infinity, 0.0, mode)));
    EXPECT_TRUE(std::isnan(silu_at(std::nan(""), 1.0, mode)));
  }
}

TEST(SiluAndMul, EveryGateIsTheSameOnEveryInstructionSet) {
  constexpr std::int64_t width = 512, gates = 1 << 16;
  const double ups[] = {1.0, -3.0, 0.0, 1e-39, infinity, std::nan("")};
  Tensor input(DType::bf16, {std::ssize(ups) * gates / width, 2 * width});
  for (std::int64_t i = 0; i < std::ssize(ups) * gates; ++i) {
    const std::int64_t gate = i / width * 2 * width + i % width;
    quant::set_bits(input, gate, static_cast<std::uint64_t>(i % gates));
    quant::set(input, gate + width, ups[i / gates]);
  }
  for (const char* const rounded : {"no", "yes"}) {
    const auto on = [&](Isa isa) {
      return ops::run(ops::SiluAndMul{.input = input, .out = {}, .round_activation = rounded}, in_mode(Mode::fast, 1, isa)).out;
    };
    const Tensor expected = on(Isa::generic);
    for (const Isa isa : available_isas()) EXPECT_TRUE(same_bits(on(isa), expected)) << name(isa) << ' ' << rounded;
  }
}

TEST(SiluAndMul, OverflowOfTheExponentialGivesMinusZero) {
  for (const Mode mode : all_modes) {
    EXPECT_EQ(silu_at(-89.0, 1.0, mode), 0.0);
    EXPECT_TRUE(std::signbit(silu_at(-89.0, 1.0, mode)));
    EXPECT_TRUE(std::isnan(silu_at(-89.0, infinity, mode))) << "-0 times infinity";
    EXPECT_TRUE(std::isnan(silu_at(-3e38, infinity, mode)));
  }
}

TEST(SiluAndMul, DivisorAbove2To126MayGiveZero) {
  const Tensor input = row_of(DType::bf16, -88.0, 1.0);
  EXPECT_EQ(quant::get(run<ops::SiluAndMul>(input, Mode::hopper), 0), 0.0);
  EXPECT_LT(quant::get(run<ops::SiluAndMul>(input, Mode::golden), 0), -1e-37);
  const Tensor zeros = row_of(DType::bf16, -0.0, 0.0).slice(1, 0, 8).clone();
  EXPECT_EQ(judged("silu_and_mul", input, zeros).failing(), 0);
  EXPECT_EQ(judged("silu_and_mul", row_of(DType::bf16, -87.0, 1.0), zeros).failing(), 8);
}

TEST(SiluAndMul, InfiniteUpTimesWhatMayVanishIsNotCompared) {
  const auto open = [](double gate, double up) {
    Arguments inputs;
    inputs.set("input", row_of(DType::bf16, gate, up));
    Reference reference;
    registry().at("silu_and_mul").reference(inputs, {}, reference);
    return reference.find("out")->unspecified.front() == 1;
  };
  EXPECT_TRUE(open(-88.0, infinity));
  EXPECT_TRUE(open(1e-39, infinity));
  EXPECT_TRUE(open(infinity, 1e-39));
  EXPECT_FALSE(open(-80.0, infinity));
  EXPECT_FALSE(open(-89.0, infinity));
  EXPECT_FALSE(open(0.0, infinity));
  EXPECT_FALSE(open(infinity, infinity));
  EXPECT_FALSE(open(-88.0, 1.0));
}

TEST(SiluAndMul, ErrorOfTheExponentialCountsOnlyWhereItDominates) {
  const auto relative_slack = [](double gate) {
    Arguments inputs;
    inputs.set("input", row_of(DType::f32, gate, 1.0));
    Reference reference;
    registry().at("silu_and_mul").reference(inputs, {}, reference);
    return reference.find("out")->slack.front() / std::fabs(reference.find("out")->exact.front());
  };
  EXPECT_LT(relative_slack(40.0), 8 * 0x1p-24);
  EXPECT_GT(relative_slack(-40.0), 90 * 0x1p-24);
  EXPECT_LT(relative_slack(-40.0), 120 * 0x1p-24);
}

template <class Op>
class GatedActivation : public testing::Test {};
using All = testing::Types<ops::SiluAndMul, ops::GeluAndMul, ops::GeluTanhAndMul>;
TYPED_TEST_SUITE(GatedActivation, All);

TYPED_TEST(GatedActivation, UpGateIsGateUpWithHalvesExchanged) {
  const Tensor input = normal(DType::bf16, {3, 74});
  for (const Mode mode : {Mode::golden, Mode::fast})
    EXPECT_TRUE(same_bits(run<TypeParam>(input, mode), run<TypeParam>(swapped(input), mode, "up_gate")));
}

TYPED_TEST(GatedActivation, RoundedActivationTimesUpIsExactBeforeItsRounding) {
  // With up = 1 the activation itself comes out; times any other up it is rounded once more, and nothing else is open but inner ties.
  Tensor ones = normal(DType::bf16, {1, 512}), input = ones.clone();
  for (std::int64_t i = 256; i < 512; ++i) quant::set(ones, i, 1.0);
  const Tensor activation = run<TypeParam>(ones, Mode::golden), out = run<TypeParam>(input, Mode::golden, "gate_up", "yes");
  for (std::int64_t i = 0; i < 256; ++i)
    EXPECT_EQ(quant::get(out, i), quant::round_to(DType::bf16, quant::get(activation, i) * quant::get(input, 256 + i)));
}

TYPED_TEST(GatedActivation, EveryWidthIsTheStartOfAWiderOne) {
  const Tensor wide = normal(DType::f16, {1, 2 * 150});
  const Tensor expected = run<TypeParam>(wide, Mode::fast);
  for (const std::int64_t width : {1, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 149}) {
    Tensor narrow(DType::f16, {1, 2 * width});
    for (std::int64_t i = 0; i < width; ++i) {
      quant::set_bits(narrow, i, quant::get_bits(wide, i));
      quant::set_bits(narrow, width + i, quant::get_bits(wide, 150 + i));
    }
    EXPECT_TRUE(same_bits(run<TypeParam>(narrow, Mode::fast), expected.slice(1, 0, width))) << width;
  }
}

TYPED_TEST(GatedActivation, LargeOutputsHaveTheBitsOfSmallOnes) {
  const Tensor input = normal(DType::f32, {3, 2 * 400000});
  const Tensor out = run<TypeParam>(input, Mode::fast);
  for (const std::int64_t row : {0, 2})
    EXPECT_TRUE(same_bits(out.slice(0, row, row + 1), run<TypeParam>(input.slice(0, row, row + 1), Mode::fast)));
}

TYPED_TEST(GatedActivation, StridedRowsGiveTheBitsOfContiguousOnes) {
  const Tensor slice = normal(DType::bf16, {4, 200}).slice(1, 24, 24 + 128);
  for (const Mode mode : all_modes) EXPECT_TRUE(same_bits(run<TypeParam>(slice, mode), run<TypeParam>(slice.clone(), mode)));
}

TYPED_TEST(GatedActivation, OddRowWidthIsRefused) {
  EXPECT_THROW(run<TypeParam>(normal(DType::bf16, {2, 33}), Mode::fast), Error);
}

TYPED_TEST(GatedActivation, HopperModeRefusesWhatItsKernelsCannotDo) {
  EXPECT_THROW(run<TypeParam>(normal(DType::bf16, {1, 64}), Mode::hopper, "up_gate"), Error);
  if (!std::is_same_v<TypeParam, ops::SiluAndMul>)  // of which upstream has a Triton kernel that rounds
    EXPECT_THROW(run<TypeParam>(normal(DType::bf16, {1, 64}), Mode::hopper, "gate_up", "yes"), Error);
  EXPECT_THROW(run<TypeParam>(normal(DType::bf16, {1, 1036}), Mode::hopper), Error) << "half a row of 1036 bytes faults on the device";
  EXPECT_NO_THROW(run<TypeParam>(normal(DType::bf16, {1, 1040}), Mode::hopper));
}

}  // namespace
}  // namespace dodona
