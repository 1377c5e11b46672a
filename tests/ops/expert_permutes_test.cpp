// Rules of what deals tokens to experts and adds their rows up again.
#include <gtest/gtest.h>

#include <cmath>

#include "dodona/error.h"
#include "helpers.h"
#include "ops/moe/deepep_post_reorder_triton_kernel.h"
#include "ops/moe/ep_gather.h"
#include "ops/moe/ep_scatter.h"
#include "ops/moe/moe_ep_deepgemm_preprocess.h"
#include "ops/moe/post_reorder_for_cutlass_moe.h"
#include "ops/moe/post_reorder_triton_kernel.h"
#include "ops/moe/silu_and_mul_masked_post_quant_fwd.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr Mode modes[] = {Mode::golden, Mode::fast, Mode::hopper};

template <class Op>
std::string error_of(const Op& op, Mode mode = Mode::fast) {
  try {
    ops::run(op, in_mode(mode));
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

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
  auto wrong = op;
  wrong.topk_ids = tensor_of(DType::i32, {3, 2}, {1, -1, 3, 1, -1, -1});
  EXPECT_NE(error_of(wrong).find("topk_ids holds 3 at element 2, expected -1 or an expert below 3"), std::string::npos);
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

}  // namespace
}  // namespace dodona
