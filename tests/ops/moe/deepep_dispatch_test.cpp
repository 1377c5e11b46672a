// Rules of DeepEP's normal mode: layout, dispatch, and that combine undoes it.
#include "ops/moe/deepep/deepep_dispatch.h"

#include <gtest/gtest.h>

#include "dodona/error.h"
#include "ops/moe/deepep/deepep_combine.h"
#include "ops/moe/deepep/deepep_get_dispatch_layout.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr Mode modes[] = {Mode::golden, Mode::fast, Mode::hopper};

/// Two ranks of two experts each; two tokens a rank: both experts of rank 1, nobody; one of each rank, expert 0 twice.
const Tensor ids = tensor_of(DType::i64, {2, 2, 2}, {3, 2, -1, -1, 1, 2, 0, 0});

TEST(DeepepGetDispatchLayout, ATokenGoesToARankOnceHoweverManyOfItsExpertsAreThere) {
  const ops::DeepepGetDispatchLayout op{.topk_idx = ids, .num_experts = 4};
  for (const Mode mode : modes) {
    const auto run = ops::run(op, in_mode(mode));
    EXPECT_EQ(values_of(run.num_tokens_per_rank), (Values{0, 1, 2, 1}));
    EXPECT_EQ(values_of(run.num_tokens_per_expert), (Values{0, 0, 1, 1, 2, 1, 1, 0}));
    EXPECT_EQ(values_of(run.is_token_in_rank), (Values{0, 1, 0, 0, 1, 1, 1, 0}));
    EXPECT_FALSE(run.num_tokens_per_rdma_rank.defined());
  }
}

TEST(DeepepGetDispatchLayout, NodesOfEightRanksAreCountedOnceToo) {
  // 16 ranks of one expert: a token for ranks 0 and 7 of the first node, one for 8 of the second and 1 of the first.
  Tensor topk(DType::i64, {16, 1, 2});
  for (std::int64_t i = 0; i < 32; ++i) topk.as<std::int64_t>()[i] = -1;
  topk.as<std::int64_t>()[0] = 0;
  topk.as<std::int64_t>()[1] = 7;
  topk.as<std::int64_t>()[30] = 8;
  topk.as<std::int64_t>()[31] = 1;
  ops::DeepepGetDispatchLayout op{.topk_idx = topk, .num_experts = 16, .internode = true};
  for (const Mode mode : modes) {
    const Values nodes = values_of(ops::run(op, in_mode(mode)).num_tokens_per_rdma_rank);
    EXPECT_EQ(nodes[0], 1);
    EXPECT_EQ(nodes[1], 0);
    EXPECT_EQ(nodes[30], 1);
    EXPECT_EQ(nodes[31], 1);
  }
  op.topk_idx = ids;
  EXPECT_NE(error_of(op).find("internode is asked for with 2 ranks"), std::string::npos);
}

TEST(DeepepDispatch, RanksReceiveTokensByRankAndOrderWithTheirOwnExpertsAlone) {
  ops::DeepepDispatch op{.x = tensor_of(DType::bf16, {2, 2, 1}, {1, 2, 3, 4}),
                         .topk_idx = ids,
                         .topk_weights = tensor_of(DType::f32, {2, 2, 2}, {.5, .25, 9, 9, 2, 3, 4, 5}),
                         .num_experts = 4,
                         .expert_alignment = 8};
  for (const Mode mode : modes) {
    const auto run = ops::run(op, in_mode(mode));
    EXPECT_EQ(values_of(run.recv_x), (Values{3, 4, 0, 0, 1, 3, 0, 0}));
    EXPECT_EQ(values_of(run.recv_topk_idx), (Values{1, -1, 0, 0, -1, -1, -1, -1, 1, 0, -1, 0, -1, -1, -1, -1}));
    EXPECT_EQ(values_of(run.recv_topk_weights), (Values{2, 0, 4, 5, 0, 0, 0, 0, .5, .25, 0, 3, 0, 0, 0, 0}));
    EXPECT_EQ(values_of(run.num_recv_tokens_per_expert), (Values{8, 8, 8, 8}));
    EXPECT_EQ(values_of(run.rank_prefix_matrix), (Values{0, 1, 2, 2}));
    EXPECT_EQ(values_of(run.recv_src_idx), (Values{0, 1, 0, 0, 0, 0, 0, 0}));
    EXPECT_FALSE(run.recv_x_scales.defined());
  }
  op.topk_idx = tensor_of(DType::i64, {2, 2, 2}, {4, 2, -1, -1, 1, 2, 0, 0});
  EXPECT_NE(error_of(op).find("topk_idx holds 4 at element 0"), std::string::npos);
  op.num_experts = 5;
  EXPECT_NE(error_of(op).find("num_experts is 5"), std::string::npos);
}

TEST(DeepepDispatch, CodesGoWithTheirScalesAndNanKeepsItsBits) {
  Tensor codes(DType::f8_e4m3, {1, 2, 128}), scales = tensor_of(DType::f32, {1, 2, 1}, {2, 4});
  quant::set_bits(codes, 5, 0xFF);
  const ops::DeepepDispatch op{.x = codes,
                               .x_scales = scales,
                               .topk_idx = tensor_of(DType::i64, {1, 2, 1}, {-1, 2}),
                               .topk_weights = filled(DType::f32, {1, 2, 1}, 1.0),
                               .num_experts = 3};
  auto other = op;
  other.topk_idx = tensor_of(DType::i64, {1, 2, 1}, {0, 0});
  for (const Mode mode : modes) {
    EXPECT_EQ(values_of(ops::run(op, in_mode(mode)).recv_x_scales), (Values{4, 0}));
    const auto all_to_one = ops::run(other, in_mode(mode));
    EXPECT_EQ(quant::get_bits(all_to_one.recv_x, 5), 0xFFu);
    EXPECT_EQ(values_of(all_to_one.num_recv_tokens_per_expert), (Values{2, 0, 0}));
  }
}

TEST(DeepepCombine, WhatADispatchSentComesBackOncePerRankThatHadIt) {
  const Tensor x = normal(DType::bf16, {2, 2, 64}, "x");
  const auto layout = ops::run(ops::DeepepGetDispatchLayout{.topk_idx = ids, .num_experts = 4}, in_mode(Mode::fast));
  const auto sent =
      ops::run(ops::DeepepDispatch{.x = x, .topk_idx = ids, .topk_weights = filled(DType::f32, {2, 2, 2}, 0.5), .num_experts = 4},
               in_mode(Mode::fast));
  const ops::DeepepCombine back{.x = sent.recv_x,
                                .recv_src_idx = sent.recv_src_idx,
                                .rank_prefix_matrix = sent.rank_prefix_matrix,
                                .is_token_in_rank = layout.is_token_in_rank,
                                .topk_weights = sent.recv_topk_weights};
  const double times[] = {1, 0, 2, 1};
  for (const Mode mode : modes) {
    const auto run = ops::run(back, in_mode(mode));
    for (std::int64_t i = 0; i < 256; ++i) EXPECT_EQ(quant::get(run.combined_x, i), times[i / 64] * quant::get(x, i));
    EXPECT_EQ(values_of(run.combined_topk_weights), (Values{.5, .5, 0, 0, .5, .5, .5, .5}));
  }
}

TEST(DeepepCombine, RanksAreAddedInFp32AndNodesRoundTheirSumsFirst) {
  // 256 + 1 + 1 + 1: 259 rounds to 260 in bf16; by nodes of two (256 + 1 = 257 rounds to 256) and (1 + 1) it is 258.
  ops::DeepepCombine op{.x = tensor_of(DType::bf16, {4, 1, 1}, {256, 1, 1, 1}),
                        .recv_src_idx = filled(DType::i32, {4, 1}, 0.0),
                        .rank_prefix_matrix = filled(DType::i32, {4, 4}, 1.0),
                        .is_token_in_rank = tensor_of(DType::boolean, {4, 1, 4}, {1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})};
  for (const Mode mode : modes) EXPECT_EQ(values_of(ops::run(op, in_mode(mode)).combined_x), (Values{260, 0, 0, 0}));
  op.ranks_per_node = 2;
  for (const Mode mode : modes) EXPECT_EQ(values_of(ops::run(op, in_mode(mode)).combined_x), (Values{258, 0, 0, 0}));
  op.bias_0 = tensor_of(DType::bf16, {4, 1, 1}, {1, 7, 0, 0});
  for (const Mode mode : modes) EXPECT_EQ(values_of(ops::run(op, in_mode(mode)).combined_x), (Values{260, 7, 0, 0}));
  op.ranks_per_node = 3;
  EXPECT_NE(error_of(op).find("ranks_per_node is 3"), std::string::npos);
}

TEST(DeepepCombine, RowsThatNobodySentAreRefusedByName) {
  ops::DeepepCombine op{.x = tensor_of(DType::bf16, {1, 2, 1}, {1, 2}),
                        .recv_src_idx = tensor_of(DType::i32, {1, 2}, {0, 1}),
                        .rank_prefix_matrix = tensor_of(DType::i32, {1, 1}, {3}),
                        .is_token_in_rank = tensor_of(DType::boolean, {1, 2, 1}, {1, 1})};
  EXPECT_NE(error_of(op).find("rank_prefix_matrix holds 3"), std::string::npos);
  op.rank_prefix_matrix = tensor_of(DType::i32, {1, 1}, {1});
  EXPECT_NE(error_of(op).find("is_token_in_rank holds 1 at element 1"), std::string::npos);
  op.rank_prefix_matrix = tensor_of(DType::i32, {1, 1}, {2});
  op.recv_src_idx = tensor_of(DType::i32, {1, 2}, {0, 2});
  EXPECT_NE(error_of(op).find("recv_src_idx holds 2 at element 1"), std::string::npos);
}

}  // namespace
}  // namespace dodona
