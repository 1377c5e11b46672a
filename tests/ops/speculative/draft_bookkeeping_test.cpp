// What a step of speculative decoding keeps of beams, slots and pages.
#include <gtest/gtest.h>

#include "dodona/error.h"
#include "ops/speculative/align_evict_mask_to_page_size.h"
#include "ops/speculative/assign_req_to_token_pool.h"
#include "ops/speculative/create_extend_after_decode_spec_info.h"
#include "ops/speculative/filter_finished_cache_loc_kernel.h"
#include "ops/speculative/get_target_cache_loc.h"
#include "ops/speculative/organize_draft_results.h"
#include "ops/speculative/select_top_k_tokens.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

Tensor ints(const Values& values, DType type = DType::i64) {
  return tensor_of(type, {static_cast<std::int64_t>(values.size())}, values);
}

ops::SelectTopKTokens beam_step(std::int64_t i, const Values& p, const Values& tokens, const Values& scores) {
  ops::SelectTopKTokens op;
  const std::int64_t rows = static_cast<std::int64_t>(p.size()) / 2;
  op.i = i, op.topk = 2;
  op.topk_p = tensor_of(DType::f32, {rows, 2}, p);
  op.topk_index = tensor_of(DType::i64, {rows, 2}, tokens);
  op.hidden_states = Tensor(DType::f32, {rows, 1});
  for (std::int64_t r = 0; r < rows; ++r) quant::set(op.hidden_states, r, 100 + static_cast<double>(r));
  if (i > 0) op.scores = tensor_of(DType::f32, {1, 2}, scores);
  return op;
}

TEST(DraftBeam, ThreeStepsAndTheTreeThatTheyMake) {
  for (const Mode mode : all_modes) {
    const auto first = ops::run(beam_step(0, {0.6, 0.35}, {10, 11}, {}), in_mode(mode));
    EXPECT_EQ(values_of(first.input_ids), (Values{10, 11}));
    EXPECT_EQ(values_of(first.out_hidden_states), (Values{100, 100}));
    EXPECT_EQ(values_of(first.tree_parents), (Values{-1, 0, 1}));
    const auto second = ops::run(beam_step(1, {0.5, 0.4, 0.7, 0.2}, {20, 21, 22, 23}, values_of(first.out_scores)), in_mode(mode));
    EXPECT_EQ(values_of(second.input_ids), (Values{20, 22})) << name(mode);
    EXPECT_EQ(values_of(second.out_hidden_states), (Values{100, 101}));
    EXPECT_EQ(values_of(second.tree_parents), (Values{2, 4}));
    const auto third = ops::run(beam_step(2, {0.9, 0.05, 0.8, 0.1}, {30, 31, 32, 33}, values_of(second.out_scores)), in_mode(mode));
    EXPECT_EQ(values_of(third.tree_parents), (Values{6, 8}));
    ops::OrganizeDraftResults op;
    Values scores = values_of(first.tree_scores), tokens = values_of(first.tree_tokens);
    for (const auto* step : {&second, &third}) {
      for (const double x : values_of(step->tree_scores)) scores.push_back(x);
      for (const double x : values_of(step->tree_tokens)) tokens.push_back(x);
    }
    op.score_list = tensor_of(DType::f32, {1, 10}, scores);
    op.token_list = tensor_of(DType::i64, {1, 10}, tokens);
    op.parents_list = tensor_of(DType::i64, {1, 5}, {-1, 0, 1, 2, 4});
    op.num_draft_token = 8;
    op = ops::run(op, in_mode(mode));
    EXPECT_EQ(values_of(op.top_scores_index), (Values{0, 1, 2, 3, 4, 6, 8}));
    EXPECT_EQ(values_of(op.draft_tokens), (Values{10, 11, 20, 21, 22, 30, 32}));
  }
}

TEST(DraftBeam, OfEqualScoresTheJudgeTakesAnyAndWhatFollowsFromIt) {
  const NamedOp op{"select_top_k_tokens"};
  Arguments inputs = op.case_of("B=1 P=2 Ph=2 Qh=2 H=1 M=2 W=2 --attr i=1 --attr topk=2 --with scores");
  const auto call = beam_step(1, {0.5, 0.25, 0.5, 0.25}, {20, 21, 22, 23}, {0.5, 0.5});
  inputs.set("topk_p", call.topk_p), inputs.set("topk_index", call.topk_index),
      inputs.set("hidden_states", tensor_of(DType::bf16, {2, 1}, {1, 2}));
  inputs.set("scores", call.scores);
  auto outputs = op.outputs(inputs, in_mode(Mode::golden));
  const auto set = [&](const char* output, const Values& values) {
    for (auto& [name, tensor] : outputs)
      if (name == output)
        for (std::size_t i = 0; i < values.size(); ++i) quant::set(tensor, static_cast<std::int64_t>(i), values[i]);
  };
  set("input_ids", {22, 20}), set("tree_parents", {4, 2}), set("out_hidden_states", {2, 1});
  EXPECT_EQ(op.failing(inputs, outputs), 0);
  set("out_hidden_states", {1, 2});
  EXPECT_GT(op.failing(inputs, outputs), 0);
  set("out_hidden_states", {2, 1}), set("tree_parents", {5, 2}), set("input_ids", {23, 20});
  EXPECT_GT(op.failing(inputs, outputs), 0);
}

TEST(DraftBeam, StepsThatLackScoresOrRowsAreRefused) {
  auto op = beam_step(1, {0.5, 0.25, 0.5, 0.25}, {20, 21, 22, 23}, {0.5, 0.5});
  op.scores = {};
  EXPECT_NE(error_of(op).find("scores is missing, and steps from 1 on read it"), std::string::npos) << error_of(op);
  op = beam_step(1, {0.5, 0.25, 0.5, 0.25, 1, 1}, {20, 21, 22, 23, 0, 0}, {0.5, 0.5});
  EXPECT_NE(error_of(op).find("rows in multiples of topk = 2"), std::string::npos) << error_of(op);
  ops::OrganizeDraftResults organize{Tensor(DType::f32, {1, 3}), Tensor(DType::i64, {1, 3}), Tensor(DType::i64, {1, 3}), {}, {}, {}, 5};
  EXPECT_NE(error_of(organize).find("num_draft_token is 5, expected at most 4"), std::string::npos) << error_of(organize);
}

TEST(DraftSlots, APageThatKeepsATokenIsNotEvicted) {
  // Six tokens lie before; two drafts are kept, so that the last kept token is the eighth, in the page of slots 4 to 7.
  ops::AlignEvictMaskToPageSize op;
  op.seq_lens = ints({6});
  op.evict_mask = tensor_of(DType::boolean, {1, 6}, {0, 0, 1, 1, 1, 1});
  op.page_size = 4, op.num_draft_tokens = 6;
  EXPECT_EQ(values_of(ops::run(op, in_mode(Mode::fast)).evict_mask), (Values{0, 0, 1, 1, 1, 1}));
  op.evict_mask = tensor_of(DType::boolean, {1, 6}, {0, 0, 0, 1, 1, 1});
  EXPECT_EQ(values_of(ops::run(op, in_mode(Mode::fast)).evict_mask), (Values{0, 0, 0, 0, 0, 0}));
}

TEST(DraftSlots, NewSlotsEnterTheTableRequestAfterRequest) {
  ops::AssignReqToTokenPool op{ints({2, 0}), filled(DType::i32, {3, 4}, 9), ints({1, 0}), ints({3, 1}), ints({50, 51, 52})};
  EXPECT_EQ(values_of(ops::run(op, in_mode(Mode::fast)).req_to_token), (Values{52, 9, 9, 9, 9, 9, 9, 9, 9, 50, 51, 9}));
  op.end_offset = ints({5, 1});
  EXPECT_NE(error_of(op).find("end_offset holds 5 at element 0, expected start_offset, 1, to the columns of req_to_token, 4"),
            std::string::npos);
  op.end_offset = ints({4, 1});
  EXPECT_NE(error_of(op).find("out_cache_loc has 3 elements, expected the 4 that the offsets ask for"), std::string::npos) << error_of(op);
}

TEST(DraftSlots, EmittedTokensStandBeforeTheEndOfTheirRequest) {
  ops::CreateExtendAfterDecodeSpecInfo op{ints({7, 8, 9, 4}, DType::i32), ints({12, 30}), ints({3, 1}, DType::i32), {}, {}};
  const auto done = ops::run(op, in_mode(Mode::fast));
  EXPECT_EQ(values_of(done.positions), (Values{9, 10, 11, 29}));
  EXPECT_EQ(values_of(done.new_verified_id), (Values{9, 4}));
  op.accept_lens = ints({2, 1}, DType::i32);
  EXPECT_NE(error_of(op).find("accept_lens asks for 3 elements, expected the 4 of verified_id"), std::string::npos) << error_of(op);
}

TEST(DraftSlots, AcceptedTokensGetTheFirstSlotsAndTheLastOnesAreFreed) {
  const ops::GetTargetCacheLoc op{
      Tensor(DType::i64, {4}), Tensor(DType::i64, {3}), ints({1, 1}, DType::i32), ints({1, 2}), ints({10, 11, 12, 20, 21, 22}), 3};
  const auto parted = ops::run(op, in_mode(Mode::fast));
  EXPECT_EQ(values_of(parted.tgt_cache_loc), (Values{10, 11, 20, 21}));
  EXPECT_EQ(values_of(parted.to_free_slots), (Values{12, 21, 22}));
  const ops::FilterFinishedCacheLocKernel filter{Tensor(DType::i64, {2}), parted.tgt_cache_loc, ints({1, 1}, DType::i32),
                                                 ints({0, 2}, DType::i32)};
  EXPECT_EQ(values_of(ops::run(filter, in_mode(Mode::fast)).out_cache_loc), (Values{20, 21}));
  ops::FilterFinishedCacheLocKernel more = filter;
  more.accept_length_filter = ints({0, 3}, DType::i32);
  EXPECT_NE(error_of(more).find("accept_length_filter holds 3 at element 1, expected 0 to 2"), std::string::npos) << error_of(more);
}

}  // namespace
}  // namespace dodona
