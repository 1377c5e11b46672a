// Rules of moe_sum_reduce.
#include "ops/moe/combine/moe_sum_reduce.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dodona/error.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

Tensor reduced(const Tensor& input, double factor, Mode mode, const char* kernel = "sgl_kernel", const char* order = "any") {
  return ops::run(
             ops::MoeSumReduce{
                 .input_tensor = input, .output_tensor = {}, .routed_scaling_factor = factor, .kernel = kernel, .order = order},
             in_mode(mode))
      .output_tensor;
}

struct Row {
  const char* what;
  DType type;
  std::int64_t topk;
  Values input;  // [T, topk, 1]
  double factor;
  Values output;
};

TEST(MoeSumReduce, RowsOfATokenAreAddedScaledAndRoundedOnce) {
  const Row table[] = {{"two tokens", DType::f32, 2, {1, 10, 100, 1000}, 2.5, {27.5, 2750}},
                       {"one expert", DType::bf16, 1, {3, -4}, 0.5, {1.5, -2}},
                       {"the sum is rounded once", DType::bf16, 3, {256, 1, 1}, 1, {258}},
                       {"the factor comes before the rounding", DType::bf16, 2, {256, 1}, 2.5, {644}},
                       {"sums begin with +0", DType::bf16, 2, {-0.0, -0.0}, 1, {0}},
                       {"a factor of zero", DType::f16, 2, {3, 4}, 0, {0}},
                       {"overflow", DType::f16, 2, {65504, 65504}, 1, {infinity}},
                       {"no overflow in between", DType::f16, 2, {65504, 65504}, 0.25, {32752}}};
  for (const Row& row : table)
    for (const Mode mode : all_modes)
      for (const char* order : {"any", "ascending"}) {
        const auto tokens = static_cast<std::int64_t>(row.output.size());
        const Tensor y = reduced(tensor_of(row.type, {tokens, row.topk, 1}, row.input), row.factor, mode, "sgl_kernel", order);
        EXPECT_EQ(values_of(y), row.output) << row.what << " " << name(mode) << " " << order;
        EXPECT_FALSE(std::signbit(quant::get(y, 0))) << row.what;
      }
}

/// The kernels' loop, in fp32.
Tensor in_order(const Tensor& input, float factor) {
  const std::int64_t topk = input.size(1), width = input.size(2);
  const Tensor out(input.dtype(), {input.size(0), width});
  for (std::int64_t i = 0; i < out.elements(); ++i) {
    float sum = 0;
    for (std::int64_t j = 0; j < topk; ++j) sum += static_cast<float>(quant::get(input, (i / width * topk + j) * width + i % width));
    quant::set(out, i, static_cast<double>(sum * factor));
  }
  return out;
}

TEST(MoeSumReduce, TheAscendingOrderIsTheKernelsLoopToTheBitInEveryMode) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    for (const std::int64_t topk : {1, 2, 8, 9})
      for (const std::int64_t width : {1, 17, 100}) {
        const Tensor input = normal(type, {3, topk, width}, "rows");
        for (const Mode mode : all_modes)
          EXPECT_TRUE(same_bits(reduced(input, 2.5, mode, "triton", "ascending"), in_order(input, 2.5f)))
              << name(type) << " " << topk << " " << name(mode);
      }
}

TEST(MoeSumReduce, AnyOrderOfTheSumIsWithinTheBudgetUnlessTheOrderIsAsked) {
  const NamedOp op{"moe_sum_reduce"};
  int differ = 0;
  for (const char* order : {"any", "ascending"}) {
    const Arguments inputs =
        op.case_of(std::string("T=4 topk=8 D=64 --dtype input_tensor=f32 --attr routed_scaling_factor=2.5 --attr order=") + order);
    const Tensor& x = *inputs.find("input_tensor");
    Tensor backwards(DType::f32, {4, 64});
    for (std::int64_t i = 0; i < 256; ++i) {
      float sum = 0;
      for (std::int64_t j = 7; j >= 0; --j) sum += static_cast<float>(quant::get(x, (i / 64 * 8 + j) * 64 + i % 64));
      quant::set(backwards, i, static_cast<double>(sum * 2.5f));
    }
    const std::int64_t failing = op.failing(inputs, {{"output_tensor", backwards}});
    if (std::string(order) == "any") EXPECT_EQ(failing, 0);
    differ += static_cast<int>(failing);
  }
  EXPECT_GT(differ, 20);
}

TEST(MoeSumReduce, TheBuildOfSglKernelFlushesDenormalsAndTritonsKeepsThem) {
  const Tensor x = tensor_of(DType::f32, {1, 2, 1}, {0x1p-130, 0x1p-131});
  EXPECT_EQ(values_of(reduced(x, 1, Mode::hopper, "sgl_kernel")), (Values{0}));
  EXPECT_EQ(values_of(reduced(x, 1, Mode::hopper, "triton")), (Values{0x1p-130 + 0x1p-131}));
  const NamedOp op{"moe_sum_reduce"};
  for (const char* order : {"any", "ascending"})
    for (const bool triton : {false, true}) {
      Arguments inputs;
      inputs.set("input_tensor", x);
      inputs.set_attr("routed_scaling_factor", 0x1p20);
      inputs.set_attr("kernel", std::string(triton ? "triton" : "sgl_kernel"));
      inputs.set_attr("order", std::string(order));
      EXPECT_EQ(op.failing(inputs, {{"output_tensor", tensor_of(DType::f32, {1, 1}, {0})}}), triton ? 1 : 0) << order;
    }
}

TEST(MoeSumReduce, AFlushedSumTimesZeroMayBeEitherZero) {
  const NamedOp op{"moe_sum_reduce"};
  const auto failing = [&](double term, double output) {
    Arguments inputs;
    inputs.set("input_tensor", tensor_of(DType::bf16, {1, 2, 1}, {term, 0}));
    inputs.set_attr("routed_scaling_factor", 0.0);
    return op.failing(inputs, {{"output_tensor", tensor_of(DType::bf16, {1, 1}, {output})}});
  };
  EXPECT_EQ(failing(-0x1p-130, 0.0), 0);
  EXPECT_EQ(failing(-0x1p-130, -0.0), 0);
  EXPECT_EQ(failing(-0x1p-130, 0x1p-120), 1);
  EXPECT_EQ(failing(-3, -0.0), 0);
  EXPECT_EQ(failing(-3, 0.0), 1);
}

TEST(MoeSumReduce, AnInfiniteFactorOfASumThatMayBeZeroGivesInfinityOrNan) {
  const NamedOp op{"moe_sum_reduce"};
  const auto failing = [&](const Values& terms, double output) {
    Arguments inputs;
    inputs.set("input_tensor", tensor_of(DType::f32, {1, static_cast<std::int64_t>(terms.size()), 1}, terms));
    inputs.set_attr("routed_scaling_factor", infinity);
    return op.failing(inputs, {{"output_tensor", tensor_of(DType::f32, {1, 1}, {output})}});
  };
  const Values cancels{1, 0x1p24, -0x1p24, -1};  // 0, in the kernel's order -1
  for (const double output : {std::nan(""), -infinity, infinity}) EXPECT_EQ(failing(cancels, output), 0) << output;
  EXPECT_EQ(failing({1, 2}, -infinity), 1);
  EXPECT_EQ(failing({0, 0}, infinity), 1);
}

TEST(MoeSumReduce, UpstreamsUnwrittenTailIsAKnownDefect) {
  const NamedOp op{"moe_sum_reduce"};
  const Arguments inputs = op.case_of("T=257 topk=2 D=24 --attr routed_scaling_factor=1");
  const Tensor out = op.outputs(inputs, in_mode(Mode::fast)).at(0).second;
  for (std::int64_t t = 0; t < 257; ++t)
    for (std::int64_t d = 16; d < 24; ++d) quant::set(out, t * 24 + d, 77);
  EXPECT_EQ(oracle::judge(op.op(), inputs, {{"output_tensor", out}}, {}).outcome, oracle::Outcome::known_defect);
  EXPECT_THROW(op.outputs(inputs, in_mode(Mode::hopper)), Error) << "what was never written has no bits";
  quant::set(out, 15, 77);
  EXPECT_EQ(op.failing(inputs, {{"output_tensor", out}}), 1);
}

TEST(MoeSumReduce, InfinityAndNanReachTheirColumnAlone) {
  Tensor x = filled(DType::bf16, {1, 2, 40}, 1.0);
  quant::set(x, 3, std::nan("")), quant::set(x, 5, infinity), quant::set(x, 46, -infinity), quant::set(x, 6, infinity);
  for (const Mode mode : all_modes)
    for (const char* order : {"any", "ascending"}) {
      const Tensor y = reduced(x, 2, mode, "sgl_kernel", order);
      EXPECT_TRUE(std::isnan(quant::get(y, 3)) && std::isnan(quant::get(y, 6)));
      EXPECT_EQ(quant::get(y, 5), infinity);
      EXPECT_EQ(quant::get(y, 4), 4.0);
      EXPECT_TRUE(std::isnan(quant::get(reduced(x, 0, mode, "sgl_kernel", order), 5))) << "infinity times a factor of zero";
    }
}

TEST(MoeSumReduce, StridedRowsGiveWhatTheirCopyGives) {
  const Tensor part = normal(DType::bf16, {4, 9, 80}, "wide").slice(2, 3, 50).slice(1, 1, 7);
  for (const Mode mode : all_modes) EXPECT_TRUE(same_bits(reduced(part, 2.5, mode), reduced(part.clone(), 2.5, mode))) << name(mode);
}

TEST(MoeSumReduce, TheFactorMustBeGiven) {
  Arguments arguments;
  arguments.set("input_tensor", Tensor(DType::bf16, {1, 2, 8}));
  EXPECT_THROW(registry().at("moe_sum_reduce").run(arguments, {}), Error);
}

TEST(MoeSumReduce, FaultsFail) {
  const NamedOp op{"moe_sum_reduce"};
  for (const char* type : {"bf16", "f16", "f32"}) {
    const Arguments inputs = op.case_of(std::string("T=3 topk=8 D=256 --attr routed_scaling_factor=2.5 --dtype input_tensor=") + type);
    const auto spoilt = [&](auto spoil) {
      Arguments wrong = inputs;
      wrong.set("input_tensor", inputs.find("input_tensor")->clone());
      spoil(wrong);
      return op.failing(inputs, op.outputs(wrong, in_mode(Mode::fast)));
    };
    EXPECT_GT(spoilt([](Arguments& a) { a.set_attr("routed_scaling_factor", 1.0); }), 700) << "no factor";
    EXPECT_GT(spoilt([](Arguments& a) { a.set_attr("routed_scaling_factor", 6.25); }), 700) << "the factor twice";
    EXPECT_GT(spoilt([](Arguments& a) {
                for (std::int64_t d = 0; d < 256; ++d) quant::set(*a.find("input_tensor"), 7 * 256 + d, 0);
              }),
              200)
        << "the last expert missed";
  }
}

}  // namespace
}  // namespace dodona
