// Products whose K is split, in hopper mode: what split_k does, and what it may not be.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/case_line.h"
#include "dodona/error.h"
#include "ops/gemm/bmm.h"
#include "ops/gemm/linear.h"
#include "oracle/cases/generate.h"
#include "quant/element.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using helpers::in_mode;

ops::Linear call(std::int64_t t, std::int64_t n, std::int64_t k, std::int64_t split_k) {
  const Arguments inputs = oracle::generate(
      parse_case_line("linear T=" + std::to_string(t) + " N=" + std::to_string(n) + " K=" + std::to_string(k) + " --seed 3"));
  return {.input = *inputs.find("input"), .weight = *inputs.find("weight"), .output = {}, .out_dtype = DType::f32, .split_k = split_k};
}

std::vector<float> sums(const ops::Linear& op) {
  const Tensor out = ops::run(op, in_mode(Mode::hopper)).output;
  return {out.as<float>(), out.as<float>() + out.elements()};
}

/// One chain over each range of K, their fp32 sums added in order.
std::vector<float> sums_of_ranges(const ops::Linear& op, const std::vector<std::int64_t>& bounds) {
  std::vector<float> total;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    ops::Linear part = op;
    part.input = op.input.slice(1, bounds[i], bounds[i + 1]);
    part.weight = op.weight.slice(1, bounds[i], bounds[i + 1]);
    part.split_k = 1;
    const std::vector<float> sum = sums(part);
    if (total.empty()) {
      total = sum;
    } else {
      for (std::size_t j = 0; j < sum.size(); ++j) total[j] = total[j] + sum[j];
    }
  }
  return total;
}

TEST(SplitK, AChainCutsWhatLiesFarBelowItsSumAndAChunkOfItsOwnDoesNot) {
  // 1, then 64 products of 2^-26, which lie below the 25 bits of a step that holds the 1; together they are 2^-20.
  for (const auto& [split_k, expected] : {std::pair{1, 1.0f}, {2, 1.0f}, {3, 1.0f + 0x1p-20f}}) {
    ops::Linear op{.input = Tensor(DType::bf16, {1, 192}),
                   .weight = Tensor(DType::bf16, {1, 192}),
                   .output = {},
                   .out_dtype = DType::f32,
                   .split_k = split_k};
    quant::set(op.input, 0, 1.0), quant::set(op.weight, 0, 1.0);
    for (std::int64_t k = 64; k < 128; ++k) quant::set(op.input, k, 0x1p-13), quant::set(op.weight, k, 0x1p-13);
    EXPECT_EQ(sums(op).front(), expected) << split_k;
  }
}

TEST(SplitK, WholeTilesAreSharedOutAndTheLastChunksAreShorter) {
  const ops::Linear one = call(5, 24, 328, 1);  // five tiles and eighth of one
  const auto split = [&](std::int64_t split_k) {
    ops::Linear op = one;
    op.split_k = split_k;
    return sums(op);
  };
  EXPECT_EQ(split(1), sums_of_ranges(one, {0, 328}));
  EXPECT_EQ(split(2), sums_of_ranges(one, {0, 192, 328}));
  EXPECT_EQ(split(3), sums_of_ranges(one, {0, 128, 256, 328}));
  EXPECT_EQ(split(4), split(3)) << "chunks of two tiles again";
  EXPECT_EQ(split(6), sums_of_ranges(one, {0, 64, 128, 192, 256, 320, 328}));
  EXPECT_NE(split(1), split(2));
  EXPECT_NE(split(2), split(3));
}

/// Of parts of K that are lists of ranges, added in this order.
std::vector<float> sums_of_parts(const ops::Linear& op, const std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>>& parts) {
  std::vector<float> total;
  for (const auto& ranges : parts) {
    std::int64_t k = 0;
    for (const auto& [begin, end] : ranges) k += end - begin;
    ops::Linear part = op;
    part.split_k = 1, part.chunks = "contiguous", part.chunk_order = "ascending", part.block_k = "64";
    part.input = Tensor(DType::bf16, {op.input.size(0), k}), part.weight = Tensor(DType::bf16, {op.weight.size(0), k});
    std::int64_t at = 0;
    for (const auto& [begin, end] : ranges) {
      copy(op.input.slice(1, begin, end), part.input.slice(1, at, at + end - begin));
      copy(op.weight.slice(1, begin, end), part.weight.slice(1, at, at + end - begin));
      at += end - begin;
    }
    const std::vector<float> sum = sums(part);
    if (total.empty()) {
      total = sum;
    } else {
      for (std::size_t j = 0; j < sum.size(); ++j) total[j] += sum[j];
    }
  }
  return total;
}

TEST(SplitK, BlocksChunksAndTheirOrderAreTheOpsToSay) {
  ops::Linear op = call(5, 24, 328, 3);  // eleven tiles of 32, the last a quarter
  op.block_k = "32";
  EXPECT_EQ(sums(op), sums_of_ranges(op, {0, 128, 256, 328}));
  op.chunk_order = "descending";
  EXPECT_EQ(sums(op), sums_of_parts(op, {{{256, 328}}, {{128, 256}}, {{0, 128}}}));
  op.chunk_order = "ascending", op.chunks = "interleaved", op.block_k = "64";
  EXPECT_EQ(sums(op), sums_of_parts(op, {{{0, 64}, {192, 256}}, {{64, 128}, {256, 320}}, {{128, 192}, {320, 328}}}));
}

TEST(SplitK, ByFoursIsTorchsSumOverALeadingDimension) {
  ops::Linear op = call(5, 24, 328, 6);
  op.chunk_order = "by_fours";
  const auto chunk = [&](std::int64_t c) { return sums_of_ranges(op, {64 * c, std::min<std::int64_t>(64 * c + 64, 328)}); };
  std::vector<float> expected;
  for (std::size_t j = 0; j < chunk(0).size(); ++j)
    expected.push_back(((chunk(0)[j] + chunk(4)[j]) + (chunk(1)[j] + chunk(5)[j])) + chunk(2)[j] + chunk(3)[j]);
  EXPECT_EQ(sums(op), expected);
}

TEST(SplitK, SplitsOfOtherNamesAreFoundToBeTheSame) {
  const std::vector<std::string> blocks{"64", "32", "128"};
  const auto simplest = [&](std::int64_t k, const ops::SplitK& split) { return ops::is_simplest(split, k, blocks); };
  EXPECT_TRUE(simplest(1024, {.split_k = 4, .block_k = "64"}));
  EXPECT_FALSE(simplest(1024, {.split_k = 5, .block_k = "64"})) << "four chunks of four tiles";
  EXPECT_FALSE(simplest(1024, {.split_k = 4, .block_k = "32"})) << "the chunks of tiles of 64";
  EXPECT_TRUE(simplest(1024, {.split_k = 11, .block_k = "32"})) << "chunks of 96";
  EXPECT_FALSE(simplest(1024, {.split_k = 2, .chunk_order = "descending", .block_k = "64"})) << "two terms commute";
  EXPECT_FALSE(simplest(1024, {.split_k = 4, .chunk_order = "by_fours", .block_k = "64"})) << "one to each of four";
  EXPECT_TRUE(simplest(1024, {.split_k = 4, .chunk_order = "descending", .block_k = "64"}));
  EXPECT_TRUE(simplest(1024, {.split_k = 4, .chunks = "interleaved", .block_k = "64"}));
  EXPECT_FALSE(simplest(256, {.split_k = 4, .chunks = "interleaved", .block_k = "64"})) << "one tile each";
  EXPECT_FALSE(simplest(1024, {.split_k = 1, .chunk_order = "descending", .block_k = "64"}));
}

TEST(SplitK, ASplitThatKDoesNotAllowIsRefusedWithTheRange) {
  const auto refusal = [](const ops::Linear& op) { return helpers::message_in([&] { ops::run(op, in_mode(Mode::hopper)); }); };
  EXPECT_NE(refusal(call(1, 4, 200, 5)).find("split_k is 5, expected 1 to 4: K = 200 has 4 tiles of 64"), std::string::npos);
  EXPECT_NE(refusal(call(1, 4, 16, 2)).find("expected 1 to 1: K = 16 has 1 tile of 64"), std::string::npos);
  EXPECT_NE(refusal(call(1, 4, 6400, 49)).find("48"), std::string::npos);
  EXPECT_NE(refusal(call(1, 4, 6400, 0)), "");
  EXPECT_EQ(refusal(call(1, 4, 200, 4)), "");
}

TEST(SplitK, TheSplitIsNoConcernOfTheOtherModes) {
  for (const Mode mode : {Mode::fast, Mode::golden}) {
    ops::Linear op = call(3, 8, 256, 1);
    const Tensor whole = ops::run(op, in_mode(mode)).output;
    op.split_k = 4;
    const Tensor split = ops::run(op, in_mode(mode)).output;
    for (std::int64_t i = 0; i < whole.elements(); ++i) EXPECT_EQ(quant::get_bits(whole, i), quant::get_bits(split, i));
  }
}

TEST(SplitK, TypesWhoseBitsAreNotKnownHaveNoHopperMode) {
  const Op& linear = registry().at("linear");
  for (const std::string types : {"--dtype input=f32 --attr out_dtype=f32", "--dtype weight=f32", "--dtype weight=f16"}) {
    const Arguments inputs = oracle::generate(parse_case_line("linear T=1 N=4 K=64 " + types));
    EXPECT_TRUE(linear.refusal(inputs, Mode::hopper)) << types;
    EXPECT_FALSE(linear.refusal(inputs, Mode::golden)) << types;
  }
}

TEST(SplitK, LayoutsOfTheRightMatricesHaveEqualBits) {
  const Arguments inputs = oracle::generate(parse_case_line("bmm L=3 M=5 N=40 K=200 --attr split_k=2"));
  ops::Bmm op{.mat1 = *inputs.find("mat1"), .mat2 = *inputs.find("mat2"), .out = {}, .split_k = 2};
  const Tensor along_n = ops::run(op, in_mode(Mode::hopper)).out;
  op.mat2 = op.mat2.transpose(1, 2).clone().transpose(1, 2);
  const Tensor along_k = ops::run(op, in_mode(Mode::hopper)).out;
  for (std::int64_t i = 0; i < along_n.elements(); ++i) EXPECT_EQ(quant::get_bits(along_n, i), quant::get_bits(along_k, i));
}

}  // namespace
}  // namespace dodona
