// Rules of what deals tokens to experts and adds their rows up again.
#include <gtest/gtest.h>

#include <cmath>

#include "dodona/error.h"
#include "ops/moe/activation/silu_and_mul_masked_post_per_tensor_quant_fwd.h"
#include "ops/moe/activation/silu_and_mul_masked_post_quant_fwd.h"
#include "ops/moe/activation/silu_mul_static_tensorwise_quant_for_cutlass_moe.h"
#include "ops/moe/align/cutlass_w4_run_moe_ep_preproess.h"
#include "ops/moe/align/deepep_ll_get_cutlass_w4a8_moe_mm_data.h"
#include "ops/moe/align/deepep_run_moe_deep_preprocess.h"
#include "ops/moe/align/moe_ep_deepgemm_preprocess.h"
#include "ops/moe/combine/deepep_post_reorder_triton_kernel.h"
#include "ops/moe/combine/ep_gather.h"
#include "ops/moe/combine/post_reorder_for_cutlass_moe.h"
#include "ops/moe/combine/post_reorder_triton_kernel.h"
#include "ops/moe/permute/deepep_permute_triton_kernel.h"
#include "ops/moe/permute/ep_scatter.h"
#include "ops/moe/permute/pre_reorder_for_cutlass_moe.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr Mode modes[] = {Mode::golden, Mode::fast, Mode::hopper};

/// Two tokens of two slots, rows 1, 2, 4, 8 of one column.
const Tensor rows = tensor_of(DType::bf16, {4, 1}, {1, 2, 4, 8});
const Tensor weights = tensor_of(DType::f32, {2, 2}, {0.5, 3, 16, 0.25});

TEST(ExpertPermutes, GatherAddsTheRowsOfSlotsThatHaveAnExpert) {
  const ops::EpGather op{.input_tensor = rows,
                         .recv_topk_ids = tensor_of(DType::i64, {2, 2}, {0, 2, -1, 1}),
                         .recv_topk_weight = weights,
                         .input_index = tensor_of(DType::i64, {2, 2}, {3, 0, 77, 1})};
  for (const Mode mode : modes) EXPECT_EQ(values_of(ops::run(op, in_mode(mode)).output_tensor), (Values{0.5 * 8 + 3 * 1, 0.25 * 2}));
  auto wrong = op;
  wrong.recv_topk_ids = tensor_of(DType::i64, {2, 2}, {0, 2, 0, 1});
  EXPECT_NE(error_of(wrong).find("ep_gather: input_index holds 77 at element 2, expected a row below 4"), std::string::npos);
}

TEST(ExpertPermutes, SumsInTheTypeOfTheRowsAreRoundedSlotBySlot) {
  // 256 + 1 rounds to 256 in bf16, twice; in fp32 the sum would be 258.
  const ops::DeepepPostReorderTritonKernel op{.down_output = tensor_of(DType::bf16, {3, 1}, {256, 1, 1}),
                                              .src2dst = tensor_of(DType::i32, {1, 4}, {0, 1, 2, -1}),
                                              .topk_weights = tensor_of(DType::f32, {1, 4}, {1, 1, 1, 9})};
  for (const Mode mode : modes) EXPECT_EQ(values_of(ops::run(op, in_mode(mode)).output), (Values{256}));
}

TEST(ExpertPermutes, AProductAndTheSumBeforeItAreRoundedTogether) {
  // 7 * 37 lies between two numbers of bf16: what was there before says to which it goes, though fp32 would have forgotten it.
  for (const double before : {-0x1p-20, 0x1p-20, -0x1p-110, 0x1p-110}) {
    const ops::DeepepPostReorderTritonKernel op{.down_output = tensor_of(DType::bf16, {2, 40}, Values(40, before)),
                                                .src2dst = tensor_of(DType::i32, {1, 2}, {0, 1}),
                                                .topk_weights = tensor_of(DType::f32, {1, 2}, {1, 7})};
    for (std::int64_t i = 40; i < 80; ++i) quant::set(op.down_output, i, 37);
    for (const Mode mode : modes)
      EXPECT_EQ(values_of(ops::run(op, in_mode(mode)).output), Values(40, before < 0 ? 258 : 260)) << before << name(mode);
  }
}

TEST(ExpertPermutes, ProductsTooSmallForFp32AndSumsBeyondItAreThoseOfTheType) {
  const double least = 0x1p-133, most = 0x1.fep127;
  const ops::DeepepPostReorderTritonKernel op{
      .down_output = tensor_of(DType::bf16, {2, 5}, {least, 3 * least, most, -most, 0, 0x1p-120, -0x1p-120, 0x1.fep126, most, most}),
      .src2dst = tensor_of(DType::i32, {1, 2}, {0, 1}),
      .topk_weights = tensor_of(DType::f32, {1, 2}, {1, 0x1p-14})};
  auto doubled = op;
  doubled.topk_weights = tensor_of(DType::f32, {1, 2}, {1, 2});
  for (const Mode mode : modes) {
    EXPECT_EQ(values_of(ops::run(op, in_mode(mode)).output), (Values{2 * least, 2 * least, most, -most, 0x1.fep113})) << name(mode);
    EXPECT_EQ(values_of(ops::run(doubled, in_mode(mode)).output), (Values{0x1p-119, -0x1p-119, infinity, most, infinity})) << name(mode);
  }
}

TEST(ExpertPermutes, RowsOfExpert0CountThoughAnH100sKernelLeavesThemOut) {
  ops::PostReorderTritonKernel op{.down_output = rows,
                                  .src2dst = tensor_of(DType::i32, {2, 2}, {3, 0, 2, 1}),
                                  .topk_ids = tensor_of(DType::i32, {2, 2}, {0, 2, -1, 1}),
                                  .topk_weights = weights};
  EXPECT_EQ(values_of(ops::run(op, in_mode(Mode::golden)).output), (Values{0.5 * 8 + 3 * 1, 0.25 * 2}));
  EXPECT_NE(error_of(op, Mode::hopper).find("topk_ids names expert 0"), std::string::npos);
  op.topk_ids = tensor_of(DType::i32, {2, 2}, {1, 2, -1, 1});
  EXPECT_EQ(values_of(ops::run(op, in_mode(Mode::hopper)).output), (Values{0.5 * 8 + 3 * 1, 0.25 * 2}));
}

TEST(ExpertPermutes, WithoutTheRowsOfExpert0ATokenHasItsOtherRowsAndNothingElse) {
  const NamedOp op{"post_reorder_triton_kernel"};
  Arguments inputs = op.case_of("R=4 D=1 T=2 topk=2");
  inputs.set("down_output", rows);
  inputs.set("src2dst", tensor_of(DType::i32, {2, 2}, {3, 0, 2, 1}));
  inputs.set("topk_ids", tensor_of(DType::i32, {2, 2}, {0, 2, 3, 1}));
  inputs.set("topk_weights", weights);
  const auto outcome = [&](double first) {
    return oracle::judge(op.op(), inputs, {{"output", tensor_of(DType::bf16, {2, 1}, {first, 16 * 4 + 0.25 * 2})}}, {}).outcome;
  };
  EXPECT_EQ(outcome(0.5 * 8 + 3 * 1), oracle::Outcome::pass);
  EXPECT_EQ(outcome(3 * 1), oracle::Outcome::known_defect);
  EXPECT_EQ(outcome(0.5 * 8), oracle::Outcome::fail);
}

TEST(ExpertPermutes, TheFactorIsAppliedToTheSumAndTheIdBehindTheLastExpertIsNobody) {
  const ops::PostReorderForCutlassMoe op{.down_output = rows,
                                         .src2dst = tensor_of(DType::i32, {2, 2}, {3, 0, 99, 1}),
                                         .topk_ids = tensor_of(DType::i32, {2, 2}, {0, 2, 3, 1}),
                                         .topk_weights = weights,
                                         .num_local_experts = 3,
                                         .routed_scaling_factor = 2};
  for (const Mode mode : modes) EXPECT_EQ(values_of(ops::run(op, in_mode(mode)).output), (Values{14, 1}));
}

TEST(ExpertPermutes, ScatterDealsTokensIntoWholeBlocksAndGatherFindsThemThere) {
  const Tensor ids = tensor_of(DType::i64, {3, 2}, {2, 0, 0, -1, -1, -1});
  const ops::EpScatter op{.recv_x = normal(DType::bf16, {3, 16}, "x"),
                          .recv_x_scale = filled(DType::f32, {3, 1}, 2.0),
                          .recv_topk = ids,
                          .num_recv_tokens_per_expert = tensor_of(DType::i32, {3}, {128, 0, 128}),
                          .output_tensor = filled(DType::bf16, {256, 16}, 9.0)};
  for (const Mode mode : {Mode::golden, Mode::fast}) {
    const auto run = ops::run(op, in_mode(mode));
    EXPECT_EQ(values_of(run.expert_start_loc), (Values{2, 128, 129}));
    EXPECT_EQ(values_of(run.output_index), (Values{128, 0, 1, 0, 0, 0}));
    EXPECT_EQ(quant::get(run.m_indices, 127), 0);
    EXPECT_EQ(quant::get(run.m_indices, 128), 2);
    const ops::EpGather back{.input_tensor = run.output_tensor,
                             .recv_topk_ids = ids,
                             .recv_topk_weight = filled(DType::f32, {3, 2}, 0.5),
                             .input_index = run.output_index};
    const Tensor sums = ops::run(back, in_mode(mode)).output_tensor;
    for (std::int64_t i = 0; i < 48; ++i)
      EXPECT_EQ(quant::get(sums, i), i < 16 ? quant::get(op.recv_x, i) : i < 32 ? quant::get(op.recv_x, i) / 2 : 0);
  }
  auto wrong = op;
  wrong.num_recv_tokens_per_expert = tensor_of(DType::i32, {3}, {128, 0, 0});
  EXPECT_NE(error_of(wrong).find("num_recv_tokens_per_expert holds 0 at element 2"), std::string::npos);
  wrong = op;
  wrong.output_tensor = filled(DType::bf16, {128, 16}, 9.0);
  EXPECT_NE(error_of(wrong).find("output_tensor has 128 rows, expected at least 256"), std::string::npos);
}

TEST(ExpertPermutes, PreprocessDealsTokensInOrderToTheirExpertsRooms) {
  const ops::MoeEpDeepgemmPreprocess op{.topk_ids = tensor_of(DType::i32, {3, 2}, {1, -1, 0, 1, -1, -1}),
                                        .hidden_states = filled(DType::bf16, {3, 128}, 448.0),
                                        .num_local_experts = 3};
  for (const Mode mode : modes) {
    const auto run = ops::run(op, in_mode(mode));
    EXPECT_EQ(run.gateup_input.shape(), (Dims{3, 256, 128}));
    EXPECT_EQ(values_of(run.masked_m), (Values{1, 2, 0}));
    EXPECT_EQ(values_of(run.src2dst), (Values{256, 0, 0, 257, 0, 0}));
    EXPECT_EQ(quant::get(run.gateup_input, 257 * 128), 448);
    EXPECT_EQ(quant::get(run.gateup_input_scale, 257), 1);
  }
  auto smaller = op;
  smaller.spare_rows = 254;
  const auto dealt = ops::run(smaller, in_mode(Mode::fast));
  EXPECT_EQ(dealt.gateup_input.shape(), (Dims{3, 2, 128}));
  EXPECT_EQ(values_of(dealt.src2dst), (Values{2, 0, 0, 3, 0, 0}));
  smaller.spare_rows = 255;
  EXPECT_NE(error_of(smaller).find("gateup_input has room for 1 rows of an expert, expected at least 2"), std::string::npos);
  auto wrong = op;
  wrong.topk_ids = tensor_of(DType::i32, {3, 2}, {1, -1, 3, 1, -1, -1});
  EXPECT_NE(error_of(wrong).find("topk_ids holds 3 at element 2, expected -1 or an expert below 3"), std::string::npos);
}

TEST(ExpertPermutes, ActivatedRowsUnderAStaticScaleAreMultipliedByItsReciprocalAndSaturate) {
  // silu(gate) * up / scale: gates of 2, ups of 3, scales of a half and of a thousandth; the second row is nobody's.
  ops::SiluMulStaticTensorwiseQuantForCutlassMoe op{.input = tensor_of(DType::bf16, {2, 4}, {2, -40, 3, 1, 2, 2, 3, 3}),
                                                    .scale = tensor_of(DType::f32, {1}, {0.5}),
                                                    .num_tokens_tensor = tensor_of(DType::i32, {1}, {1})};
  const double x = 2 / (1 + std::exp(-2.0)) * 3;
  for (const Mode mode : modes) {
    const auto codes = values_of(ops::run(op, in_mode(mode)).output);
    EXPECT_EQ(codes[0], quant::round_to(DType::f8_e4m3, x / 0.5)) << name(mode);
    EXPECT_EQ(codes[1], 0);
    EXPECT_TRUE(std::signbit(codes[1])) << "what is left of -40 has its sign";
    EXPECT_EQ(codes[2], 0);
    op.scale = tensor_of(DType::f32, {1}, {0.001});
    EXPECT_EQ(values_of(ops::run(op, in_mode(mode)).output)[0], 448);
    op.scale = tensor_of(DType::f32, {1}, {0.5});
  }
  op.num_tokens_tensor = tensor_of(DType::i32, {1}, {3});
  EXPECT_NE(error_of(op).find("num_tokens_tensor holds 3 at element 0, expected 0 to 2"), std::string::npos) << error_of(op);
}

TEST(ExpertPermutes, OfMaskedRowsTheActivationIsRoundedOfOthersItIsNot) {
  // A scale that puts a boundary of e4m3 between silu(1.5) and what bf16 makes of it, clear of both.
  const double gate = 1.5, silu = gate / (1 + std::exp(-gate)), narrow = quant::round_to(DType::bf16, silu);
  const auto code = [](double x) { return quant::round_to(DType::f8_e4m3, x); };
  const auto clear = [&](double x) { return code(x * (1 - 1e-5)) == code(x * (1 + 1e-5)); };
  double s = 0;
  for (double by = 1; by < 2; by += 0x1p-12)
    if (code(silu / by) != code(narrow / by) && clear(silu / by) && clear(narrow / by)) s = by;
  ASSERT_GT(s, 0) << "no scale tells them apart";
  const double up = 1;
  const Tensor scale = tensor_of(DType::f32, {1}, {s});
  for (const Mode mode : modes) {
    const auto all = ops::run(
        ops::SiluMulStaticTensorwiseQuantForCutlassMoe{
            .input = tensor_of(DType::bf16, {1, 2}, {gate, up}), .scale = scale, .num_tokens_tensor = tensor_of(DType::i32, {1}, {1})},
        in_mode(mode));
    const auto masked = ops::run(
        ops::SiluAndMulMaskedPostPerTensorQuantFwd{
            .input = tensor_of(DType::bf16, {1, 1, 2}, {gate, up}), .masked_m = tensor_of(DType::i32, {1}, {1}), .scale = scale},
        in_mode(mode));
    EXPECT_EQ(quant::get(all.output, 0), code(silu / s)) << name(mode);
    EXPECT_EQ(quant::get(masked.output, 0), code(narrow / s)) << name(mode);
  }
  const ops::SiluAndMulMaskedPostPerTensorQuantFwd scales{
      .input = filled(DType::bf16, {2, 1, 32}, 1.0), .masked_m = tensor_of(DType::i32, {2}, {1, 1}), .scale = filled(DType::f32, {2}, 1.0)};
  EXPECT_NE(error_of(scales).find("scale has shape [2], expected [1]"), std::string::npos) << error_of(scales);
}

TEST(ExpertPermutes, ActivatedRowsAreQuantizedAsFarAsTheMaskSays) {
  ops::SiluAndMulMaskedPostQuantFwd op{.input = filled(DType::bf16, {2, 2, 256}, 1.0), .masked_m = tensor_of(DType::i32, {2}, {2, 0})};
  const double x = quant::round_to(DType::bf16, 1 / (1 + std::exp(-1.0)));
  for (const Mode mode : modes) {
    const auto run = ops::run(op, in_mode(mode));
    EXPECT_EQ(quant::get(run.output, 0), 448) << name(mode);
    EXPECT_NEAR(quant::get(run.output_scale, 1), x / 448, 1e-8);
    EXPECT_EQ(quant::get(run.output, 2 * 128), 0);
  }
  op.quant_group_size = 48;
  EXPECT_NE(error_of(op).find("quant_group_size is 48"), std::string::npos);
}

TEST(ExpertPermutes, SlotsOfOneExpertKeepTheirOrderAndThoseOfNobodyComeLastOrBeforeRow0) {
  const ops::CutlassW4RunMoeEpPreproess last{.topk_ids = tensor_of(DType::i32, {3, 2}, {2, 0, 3, 2, 0, 3})};
  for (const Mode mode : modes) EXPECT_EQ(values_of(ops::run(last, in_mode(mode)).src2dst), (Values{2, 0, 4, 3, 1, 5}));
  ops::DeepepRunMoeDeepPreprocess first{.topk_ids = tensor_of(DType::i64, {3, 2}, {2, 0, -1, 2, 0, -1}), .num_experts = 3};
  for (const Mode mode : modes) {
    const auto run = ops::run(first, in_mode(mode));
    EXPECT_EQ(values_of(run.src2dst), (Values{2, 0, -2, 3, 1, -1}));
    EXPECT_EQ(values_of(run.seg_indptr), (Values{0, 2, 2, 4}));
    EXPECT_EQ(values_of(run.reorder_topk_ids), (Values{0, 0, 2, 2, 0, 0}));
  }
  first.num_experts = 2;
  EXPECT_NE(error_of(first).find("topk_ids holds 2 at element 0, expected -1 or an expert below 2"), std::string::npos);
}

TEST(ExpertPermutes, TokensAreDividedByTheirScaleOnceAndOnlyWhereAnExpertIs) {
  ops::PreReorderForCutlassMoe op{.input = tensor_of(DType::bf16, {2, 2}, {1, -3, 2000, 0.5}),
                                  .gateup_input = filled(DType::f8_e4m3, {4, 2}, 1.0),
                                  .src2dst = tensor_of(DType::i32, {2, 2}, {2, 0, 1, 99}),
                                  .topk_ids = tensor_of(DType::i32, {2, 2}, {1, 0, 1, 2}),
                                  .a1_scales = tensor_of(DType::f32, {1}, {0.5}),
                                  .num_local_experts = 2};
  for (const Mode mode : modes) EXPECT_EQ(values_of(ops::run(op, in_mode(mode)).gateup_input), (Values{2, -6, 448, 1, 2, -6, 0, 0}));
  auto plain = op;
  plain.a1_scales = Tensor();
  for (const Mode mode : modes) EXPECT_EQ(values_of(ops::run(plain, in_mode(mode)).gateup_input), (Values{1, -3, 448, .5, 1, -3, 0, 0}));
  op.src2dst = tensor_of(DType::i32, {2, 2}, {2, 0, 2, 99});
  EXPECT_NE(error_of(op).find("src2dst holds 2 at element 2, expected a row below 4 that no other slot has"), std::string::npos);
  op.src2dst = tensor_of(DType::i32, {2, 2}, {2, 0, -1, 99});
  EXPECT_NE(error_of(op).find("src2dst holds -1 at element 2"), std::string::npos);
}

TEST(ExpertPermutes, PermutedTokensComeBackFromTheRowsThatThePreprocessNamed) {
  const Tensor ids = tensor_of(DType::i64, {3, 2}, {2, 0, -1, 2, -1, -1});
  const auto rows_of = ops::run(ops::DeepepRunMoeDeepPreprocess{.topk_ids = ids, .num_experts = 3}, in_mode(Mode::fast));
  const Tensor src2dst = rows_of.src2dst.reshape({3, 2}), x = normal(DType::bf16, {3, 8}, "x");
  for (const Mode mode : modes) {
    const auto run = ops::run(
        ops::DeepepPermuteTritonKernel{.input = x, .gateup_input = filled(DType::bf16, {3, 8}, 9.0), .src2dst = src2dst, .topk_ids = ids},
        in_mode(mode));
    const ops::DeepepPostReorderTritonKernel back{
        .down_output = run.gateup_input, .src2dst = src2dst, .topk_weights = filled(DType::f32, {3, 2}, 0.5)};
    const Tensor sums = ops::run(back, in_mode(mode)).output;
    for (std::int64_t i = 0; i < 24; ++i) EXPECT_EQ(quant::get(sums, i), i < 8 ? quant::get(x, i) : i < 16 ? quant::get(x, i) / 2 : 0);
  }
}

TEST(ExpertPermutes, SizesOfTheW4A8ProductsHaveTheRowsInTheMiddle) {
  const ops::DeepepLlGetCutlassW4a8MoeMmData op{.masked_m = tensor_of(DType::i32, {2}, {5, 0}), .num_experts = 2, .n = 3, .k = 7};
  for (const Mode mode : modes) {
    const auto run = ops::run(op, in_mode(mode));
    EXPECT_EQ(values_of(run.problem_sizes1), (Values{6, 5, 7, 6, 0, 7}));
    EXPECT_EQ(values_of(run.problem_sizes2), (Values{7, 5, 3, 7, 0, 3}));
  }
}

}  // namespace
}  // namespace dodona
