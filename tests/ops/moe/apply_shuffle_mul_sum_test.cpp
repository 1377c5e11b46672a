#include "ops/moe/combine/apply_shuffle_mul_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dodona/error.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

Tensor run(const Tensor& input, const Tensor& permutation, const Tensor& factors, const Dims& shape, Mode mode) {
  Exec exec;
  exec.mode = mode;
  return ops::run(
             ops::ApplyShuffleMulSum{
                 .input = input, .permutation = permutation, .factors = factors, .output = Tensor(input.dtype(), shape)},
             exec)
      .output;
}

struct Row {
  const char* what;
  DType type;
  std::vector<double> input;  // four rows of one element
  std::vector<double> permutation, factors;
  std::vector<double> output;
};

TEST(ApplyShuffleMulSum, RowsOfATokenAreWeightedAndAddedInFp32) {
  const double inf = std::numeric_limits<double>::infinity();
  const Row table[] = {{"weights", DType::f32, {1, 10, 100, 1000}, {3, 0, 2, 1}, {2, 3, 5, 7}, {2003, 570}},
                       {"no weights", DType::f32, {1, 10, 100, 1000}, {3, 0, 2, 1}, {}, {1001, 110}},
                       {"a row twice", DType::bf16, {1, 10, 100, 1000}, {0, 0, 1, 1}, {1, 2, 3, 4}, {3, 70}},
                       {"four experts", DType::f16, {1, 10, 100, 1000}, {0, 1, 2, 3}, {1, 1, 1, 1}, {1111}},
                       {"the sum is rounded once", DType::bf16, {256, 1, 1, 0}, {0, 1, 2, 3}, {}, {258}},
                       {"halfway to even", DType::bf16, {256, 1, 0, 0}, {0, 1, 2, 3}, {}, {256}},
                       {"sums begin with +0", DType::bf16, {-0.0, -0.0, 1, 1}, {0, 1, 2, 3}, {1, 1, 0, 0}, {0}},
                       {"overflow", DType::f16, {65504, 65504, 0, 0}, {0, 1, 2, 3}, {}, {inf}},
                       {"one expert a token", DType::bf16, {1, 2, 3, 4}, {3, 2, 1, 0}, {0.5, 0.5, 2, 2}, {2, 1.5, 4, 2}}};
  for (const Row& row : table)
    for (const Mode mode : all_modes) {
      const auto tokens = static_cast<std::int64_t>(row.output.size());
      const Tensor factors = row.factors.empty() ? Tensor() : tensor_of(row.type, {4}, row.factors);
      const Tensor y = run(tensor_of(row.type, {4, 1}, row.input), tensor_of(DType::i32, {4}, row.permutation), factors, {tokens, 1}, mode);
      for (std::int64_t t = 0; t < tokens; ++t) {
        EXPECT_EQ(quant::get(y, t), row.output[static_cast<std::size_t>(t)]) << row.what << " " << name(mode);
        EXPECT_FALSE(std::signbit(quant::get(y, t))) << row.what;
      }
    }
}

TEST(ApplyShuffleMulSum, FactorsMayHaveOneRowPerToken) {
  const Tensor input = tensor_of(DType::bf16, {4, 1}, {1, 10, 100, 1000}), rows = tensor_of(DType::i32, {4}, {0, 1, 2, 3});
  for (const Mode mode : all_modes)
    EXPECT_EQ(quant::get(run(input, rows, tensor_of(DType::bf16, {2, 2}, {1, 2, 1, 1}), {2, 1}, mode), 0), 21);
}

TEST(ApplyShuffleMulSum, TheOutputSaysHowManyExpertsATokenHas) {
  const auto error = [](const Dims& output, std::int64_t permutation) {
    return message_in([&] { run(Tensor(DType::bf16, {8, 4}), Tensor(DType::i32, {permutation}), {}, output, Mode::fast); });
  };
  EXPECT_EQ(error({2, 4}, 8), "");
  EXPECT_EQ(error({0, 4}, 0), "");
  EXPECT_EQ(error({2, 4}, 0), "");
  EXPECT_NE(error({3, 4}, 8).find("permutation has shape [8], expected [M*topk] with M = 3"), std::string::npos) << error({3, 4}, 8);
  EXPECT_NE(error({0, 4}, 8).find("permutation"), std::string::npos);
  Arguments no_output = oracle::generate(parse_case_line("apply_shuffle_mul_sum M=2 topk=2 R=4 D=16"));
  std::erase_if(no_output.tensors, [](const auto& entry) { return entry.first == "output"; });
  EXPECT_THROW(registry().at("apply_shuffle_mul_sum").run(no_output, {}), Error);
}

TEST(ApplyShuffleMulSum, NanAndInfinityReachTheirColumnAlone) {
  Tensor input = tensor_of(DType::bf16, {2, 40}, std::vector<double>(80, 1.0));
  quant::set(input, 3, std::nan("")), quant::set(input, 5, INFINITY), quant::set(input, 46, -INFINITY), quant::set(input, 6, INFINITY);
  for (const Mode mode : all_modes) {
    const Tensor y = run(input, tensor_of(DType::i32, {2}, {0, 1}), {}, {1, 40}, mode);
    EXPECT_TRUE(std::isnan(quant::get(y, 3)));
    EXPECT_EQ(quant::get(y, 5), INFINITY);
    EXPECT_TRUE(std::isnan(quant::get(y, 6)));
    EXPECT_EQ(quant::get(y, 4), 2.0);
  }
}

TEST(ApplyShuffleMulSum, WhatUpstreamLeavesUnwrittenBelowSixteenColumnsIsAKnownDefect) {
  const NamedOp op{"apply_shuffle_mul_sum"};
  for (const std::int64_t width : {8, 15, 16}) {
    const Arguments inputs = op.case_of("M=3 topk=2 R=6 D=" + std::to_string(width));
    const oracle::NamedTensors unwritten{{"output", filled(DType::bf16, {3, width}, 77)}};
    EXPECT_EQ(oracle::judge(op.op(), inputs, unwritten, {}).outcome, width < 16 ? oracle::Outcome::known_defect : oracle::Outcome::fail);
  }
}

/// The fault makes another call's outputs be judged as this one's.
struct Fault {
  const char* what;
  void (*apply)(Arguments&);
};

TEST(ApplyShuffleMulSum, FaultsFail) {
  const Fault faults[] = {
      {"rows not permuted",
       [](Arguments& a) {
         Tensor rows = a.find("permutation")->clone();
         for (std::int64_t i = 0; i < rows.elements(); ++i) quant::set(rows, i, static_cast<double>(i));
         a.set("permutation", rows);
       }},
      {"an expert missed", [](Arguments& a) { quant::set(*a.find("factors"), 11, 0); }},
      {"an expert taken twice", [](Arguments& a) { quant::set(*a.find("permutation"), 5, quant::get(*a.find("permutation"), 4)); }},
      {"no factors", [](Arguments& a) { std::erase_if(a.tensors, [](const auto& entry) { return entry.first == "factors"; }); }},
  };
  const Op& op = registry().at("apply_shuffle_mul_sum");
  for (const char* type : {"bf16", "f16", "f32"})
    for (const Fault& fault : faults) {
      const CaseLine line = parse_case_line(std::string("apply_shuffle_mul_sum M=3 topk=8 R=24 D=256 --dtype input=") + type);
      Arguments wrong = oracle::runnable(op, oracle::generate(line));
      fault.apply(wrong);
      op.run(wrong, {});
      EXPECT_GT(oracle::judge(op, oracle::generate(line), {{"output", *wrong.find("output")}}, {}).failing(), 200) << fault.what << type;
    }
}

TEST(ApplyShuffleMulSum, SumsRoundedToTheTypeInBetweenFail) {
  const Op& op = registry().at("apply_shuffle_mul_sum");
  const Arguments inputs = oracle::generate(parse_case_line("apply_shuffle_mul_sum M=3 topk=8 R=24 D=256"));
  Tensor output(DType::bf16, {3, 256});
  for (std::int64_t t = 0; t < 3; ++t)
    for (std::int64_t d = 0; d < 256; ++d) {
      double sum = 0;
      for (std::int64_t j = t * 8; j < t * 8 + 8; ++j) {
        const auto row = static_cast<std::int64_t>(quant::get(*inputs.find("permutation"), j));
        sum = quant::round_to(DType::bf16, sum + quant::get(*inputs.find("factors"), j) * quant::get(*inputs.find("input"), row * 256 + d));
      }
      quant::set(output, t * 256 + d, sum);
    }
  EXPECT_GT(oracle::judge(op, inputs, {{"output", output}}, {}).failing(), 100);
}

}  // namespace
}  // namespace dodona
