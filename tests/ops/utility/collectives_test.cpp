// Collectives over the ranks of a group, all in one process.
#include <gtest/gtest.h>

#include "dodona/error.h"
#include "ops/normalization/fused_add_rmsnorm.h"
#include "ops/utility/all_gather_into_tensor.h"
#include "ops/utility/all_reduce.h"
#include "ops/utility/reduce_scatter_tensor.h"
#include "ops/utility/trtllm_allreduce_fusion.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

/// Terms of fp32 whose sum tells in which order they were added: 2^24 swallows a 1 that follows it, but not two that come before.
ops::AllReduce ordered(const char* algorithm) {
  ops::AllReduce op;
  op.inp = Tensor(DType::f32, {4, 1, 32});
  for (std::int64_t i = 0; i < 32; ++i) {
    const double terms[] = {1, 1, 0x1p24, 1};
    for (std::int64_t r = 0; r < 4; ++r) quant::set(op.inp, r * 32 + i, terms[r]);
  }
  op.algorithm = algorithm;
  return op;
}

TEST(AllReduce, OneStageAddsFromRank0OnAndTwoStagesFromThePartsOwnRankOnInARing) {
  for (const Mode mode : all_modes) {
    EXPECT_EQ(values_of(ops::run(ordered("one_stage"), in_mode(mode)).out), Values(32, 0x1p24 + 4)) << name(mode);
    const Values parts = values_of(ops::run(ordered("two_stage"), in_mode(mode)).out);
    // From rank 0: 2 + 2^24, + 1 is a tie that goes up. From 1: 1 + 2^24 is a tie that goes down, and so on. From 2: likewise. From 3: 3 +
    // 2^24.
    const double expected[] = {0x1p24 + 4, 0x1p24, 0x1p24, 0x1p24 + 4};
    for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(parts[i], expected[i / 8]) << name(mode) << " element " << i;
  }
}

TEST(AllReduce, TheLastPartOfTwoStagesHasTheVectorsThatAreLeftOver) {
  ops::AllReduce op;
  op.inp = Tensor(DType::f32, {4, 1, 5 * 4});  // five vectors: parts of one, one, one and two
  for (std::int64_t r = 0; r < 4; ++r)
    for (std::int64_t i = 0; i < 20; ++i) quant::set(op.inp, r * 20 + i, r == 2 ? 0x1p24 : 1);
  op.algorithm = "two_stage";
  const Values sums = values_of(ops::run(op, in_mode(Mode::fast)).out);
  const double expected[] = {0x1p24 + 4, 0x1p24, 0x1p24, 0x1p24 + 4, 0x1p24 + 4};
  for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], expected[i / 4]) << i;
}

TEST(AllReduce, AutoTakesTwoStagesFromTheSizesOnThatUpstreamNames) {
  struct {
    std::int64_t ranks, kib;
    bool two;
  } rows[] = {{2, 4096, false}, {4, 256, false}, {4, 512, true}, {8, 255, false}, {8, 256, true}, {6, 256, true}};
  for (const auto& row : rows) {
    ops::AllReduce op;
    op.inp = normal(DType::f32, {row.ranks, row.kib, 256}, "inp");
    const Tensor chosen = ops::run(op, in_mode(Mode::fast)).out;
    op.algorithm = "one_stage";
    EXPECT_EQ(same_bits(chosen, ops::run(op, in_mode(Mode::fast)).out), !row.two) << row.ranks << " ranks, " << row.kib << " KiB";
  }
}

TEST(AllReduce, TermsOfMinusZeroStayMinusZero) {
  for (const Mode mode : all_modes) {
    ops::AllReduce op;
    op.inp = filled(DType::bf16, {2, 1, 40}, -0.0);
    const Tensor out = ops::run(op, in_mode(mode)).out;
    for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(quant::get_bits(out, i), 0x8000u) << name(mode);
  }
}

TEST(AllReduce, WhatUpstreamDoesNotLaunchIsRefusedByName) {
  const auto refused = [](std::int64_t ranks, std::int64_t width, bool nvlink, const char* text) {
    ops::AllReduce op;
    op.inp = Tensor(DType::bf16, {ranks, 1, width});
    op.full_nvlink = nvlink;
    const Error error = error_from([&] { ops::run(op, in_mode(Mode::fast)); });
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  };
  refused(3, 8, true, "inp");
  refused(2, 12, true, "a multiple of 16 bytes");
  refused(4, 8, false, "full_nvlink is false with 4 ranks");
}

TEST(ReduceScatterTensor, ARingRoundsEachSumAndBeginsBehindTheRankThatItEndsWith) {
  // 256 swallows a 1 that is added to it in bf16, but not two that came before.
  ops::ReduceScatterTensor op;
  op.input = tensor_of(DType::bf16, {3, 3, 1}, {1, 1, 1, 1, 1, 1, 256, 256, 256});
  op.order = "ring";
  // Part 0: ranks 1, 2, 0: 1 + 256 = 256, + 1 = 256. Part 1: ranks 2, 0, 1. Part 2: ranks 0, 1, 2: 2 + 256.
  for (const Mode mode : all_modes) EXPECT_EQ(values_of(ops::run(op, in_mode(mode)).output), (Values{256, 256, 258})) << name(mode);
}

TEST(AllGatherIntoTensor, PartsStandOneBehindTheOtherAlongRowsOrColumns) {
  ops::AllGatherIntoTensor op;
  op.input = tensor_of(DType::f32, {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(values_of(ops::run(op, in_mode(Mode::fast)).output), (Values{1, 2, 3, 4, 5, 6, 7, 8}));
  op.dim = 1;
  const Tensor columns = ops::run(op, in_mode(Mode::fast)).output;
  EXPECT_EQ(columns.shape(), (Dims{2, 2, 2}));
  EXPECT_EQ(values_of(columns), (Values{1, 2, 5, 6, 3, 4, 7, 8}));
  op.output = Tensor(DType::f32, {4, 2});
  EXPECT_THROW(ops::run(op, in_mode(Mode::fast)), Error);
}

TEST(TrtllmAllreduceFusion, IsTheRanksSumRoundedAtEachStepThenTheNormOfTheRoundedResidual) {
  for (const bool fp32_acc : {false, true}) {
    ops::TrtllmAllreduceFusion op;
    op.allreduce_in = normal(DType::bf16, {4, 3, 1024}, "allreduce_in");
    op.residual_in = normal(DType::bf16, {3, 1024}, "residual_in");
    op.rms_gamma = normal(DType::bf16, {1024}, "rms_gamma");
    op.fp32_acc = fp32_acc;
    Tensor sum(DType::bf16, {3, 1024});
    for (std::int64_t i = 0; i < sum.elements(); ++i) {
      float x = 0;
      for (std::int64_t r = 0; r < 4; ++r) {
        x += static_cast<float>(quant::get(op.allreduce_in, r * sum.elements() + i));
        if (!fp32_acc) x = static_cast<float>(quant::round_to(DType::bf16, x));
      }
      quant::set(sum, i, x);
    }
    const ops::FusedAddRmsnorm norm{.input = sum, .residual = op.residual_in.clone(), .weight = op.rms_gamma, .normalize = "rounded"};
    const auto apart = ops::run(norm, in_mode(Mode::fast));
    const auto fused = ops::run(op, in_mode(Mode::fast));
    EXPECT_TRUE(same_bits(fused.residual_out, apart.residual));
    EXPECT_TRUE(same_bits(fused.norm_out, apart.input));
    EXPECT_TRUE(same_bits(ops::run(op, in_mode(Mode::hopper)).residual_out, apart.residual));
  }
}

TEST(TrtllmAllreduceFusion, OneShotSendsZeroForMinusZero) {
  for (const bool use_oneshot : {false, true}) {
    ops::TrtllmAllreduceFusion op;
    op.allreduce_in = filled(DType::bf16, {2, 4, 256}, -0.0);
    op.residual_in = filled(DType::bf16, {4, 256}, -0.0);
    op.rms_gamma = filled(DType::bf16, {256}, 1);
    op.use_oneshot = use_oneshot;
    for (const Mode mode : all_modes)
      EXPECT_EQ(quant::get_bits(ops::run(op, in_mode(mode)).residual_out, 5), use_oneshot ? 0u : 0x8000u) << name(mode);
  }
}

TEST(TrtllmAllreduceFusion, HopperModeIsThereWhereTheLaunchDoesNotDependOnRegisters) {
  ops::TrtllmAllreduceFusion op;
  op.rms_gamma = filled(DType::bf16, {7168}, 1);
  for (const std::int64_t tokens : {33, 34}) {
    op.allreduce_in = normal(DType::bf16, {2, tokens, 7168}, "allreduce_in");
    op.residual_in = normal(DType::bf16, {tokens, 7168}, "residual_in");
    op.residual_out = op.norm_out = Tensor();
    op.cluster_size = 0;
    if (tokens == 33) {
      EXPECT_NO_THROW(ops::run(op, in_mode(Mode::hopper)));
    } else {
      EXPECT_THROW(ops::run(op, in_mode(Mode::hopper)), Error);
      op.cluster_size = 4;
      EXPECT_NO_THROW(ops::run(op, in_mode(Mode::hopper)));
    }
  }
}

}  // namespace
}  // namespace dodona
