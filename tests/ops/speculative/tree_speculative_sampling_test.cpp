// Trees of draft tokens verified by sampling: upstream's examples, the distribution of what is emitted by enumeration, and what the judge
// takes where a coin lies on a boundary.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "dodona/error.h"
#include "ops/draws/blocked_row.h"
#include "ops/draws/draw_odds.h"
#include "ops/speculative/tree_speculative_sampling_target_only.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;
using Sampling = ops::TreeSpeculativeSamplingTargetOnly;

struct Trees {
  Dims shape;
  Values candidates, next_token, next_sibling;
};

/// Coins of 0; probabilities and drafts of 0.
Sampling call(const Trees& trees, std::int64_t vocabulary, std::int64_t width) {
  Sampling op;
  op.candidates = tensor_of(DType::i64, trees.shape, trees.candidates);
  op.retrive_next_token = tensor_of(DType::i64, trees.shape, trees.next_token);
  op.retrive_next_sibling = tensor_of(DType::i64, trees.shape, trees.next_sibling);
  op.retrive_index = Tensor(DType::i64, trees.shape);
  const std::int64_t nodes = op.retrive_index.elements();
  for (std::int64_t i = 0; i < nodes; ++i) op.retrive_index.as<std::int64_t>()[i] = i;
  op.uniform_samples = filled(DType::f32, trees.shape, 0);
  op.uniform_samples_for_final_sampling = filled(DType::f32, {trees.shape[0]}, 0);
  op.target_probs = filled(DType::f32, {trees.shape[0], trees.shape[1], vocabulary}, 0);
  op.draft_probs = filled(DType::f32, {trees.shape[0], trees.shape[1], vocabulary}, 0);
  op.predicts = filled(DType::i32, {nodes}, 55);
  op.accept_index = filled(DType::i32, {trees.shape[0], width}, 55);
  return op;
}

/// The tree of build_tree_kernel_efficient's example.
const Trees example{{1, 8}, {9, 10, 11, 20, 21, 22, 30, 32}, {1, 3, 5, 6, -1, 7, -1, -1}, {-1, 2, -1, 4, -1, -1, -1, -1}};

Sampling example_call() {
  Sampling op = call(example, 40, 4);
  const auto q = [&](std::int64_t node, std::int64_t token, double value) { quant::set(op.target_probs, node * 40 + token, value); };
  q(0, 10, 0.5), q(0, 11, 0.3), q(0, 7, 0.2);
  q(2, 22, 0.25), q(2, 23, 0.5), q(2, 5, 0.25);
  quant::set(op.uniform_samples, 0, 0.7);
  quant::set(op.uniform_samples, 2, 0.4);
  quant::set(op.uniform_samples_for_final_sampling, 0, 0.5);
  return op;
}

TEST(TreeSpeculativeSampling, ChildrenTakeTheirSlicesOfTheCoinAndTheRestIsDrawn) {
  for (const Mode mode : all_modes) {
    Sampling op = example_call();
    op = ops::run(op, in_mode(mode));
    EXPECT_EQ(values_of(op.accept_index), (Values{0, 2, -1, -1})) << name(mode);
    EXPECT_EQ(values_of(op.accept_token_num), Values{1});
    EXPECT_EQ(values_of(op.predicts), (Values{11, -1, 23, -1, -1, -1, -1, -1}));
    Values drafts(320, 0);
    drafts[10] = 0.5, drafts[2 * 40 + 22] = 0.25;
    EXPECT_EQ(values_of(op.draft_probs), drafts);
  }
}

TEST(TreeSpeculativeSampling, ThresholdsOfZeroAcceptTheFirstChildren) {
  const Trees upstreams{{2, 6},
                        {0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12},
                        {1, 2, -1, 4, 5, -1, 4, 2, 3, -1, 5, -1},
                        {-1, 3, -1, -1, -1, -1, -1, -1, -1, -1, 1, -1}};
  for (const Mode mode : all_modes) {
    Sampling op = call(upstreams, 20, 4);
    for (std::int64_t row = 0; row < 12; ++row) quant::set(op.target_probs, row * 20 + 18, 1);
    for (std::int64_t i = 0; i < 12; ++i) quant::set(op.uniform_samples, i, 0.9);
    op.threshold_single = op.threshold_acc = 0;
    op = ops::run(op, in_mode(mode));
    EXPECT_EQ(values_of(op.predicts), (Values{1, 2, 18, -1, -1, -1, 11, -1, -1, -1, 12, 18}));
    EXPECT_EQ(values_of(op.accept_index), (Values{0, 1, 2, -1, 6, 10, 11, -1}));
    EXPECT_EQ(values_of(op.accept_token_num), (Values{2, 2}));
  }
}

/// Emitted tokens over all coins of a grid, each counted once: coins stand in the middles of `steps` equal parts.
std::map<Values, int> emitted_over(const std::vector<double>& q0, const std::vector<double>& q1, int steps, Mode mode) {
  const auto vocabulary = static_cast<std::int64_t>(q0.size());
  // Two children of the root, 1 and 2; one child of 2.
  const Trees trees{{1, 4}, {0, 1, 2, 0}, {1, -1, 3, -1}, {-1, 2, -1, -1}};
  std::map<Values, int> counts;
  for (int first = 0; first < steps; ++first)
    for (int second = 0; second < steps; ++second)
      for (int last = 0; last < steps; ++last) {
        Sampling op = call(trees, vocabulary, 3);
        const auto middle = [&](int part) { return (part + 0.5) / steps; };
        quant::set(op.uniform_samples, 0, middle(first));
        quant::set(op.uniform_samples, 2, middle(second));
        quant::set(op.uniform_samples_for_final_sampling, 0, middle(last));
        for (std::int64_t node = 0; node < 4; ++node)
          for (std::int64_t v = 0; v < vocabulary; ++v)
            quant::set(op.target_probs, node * vocabulary + v,
                       node == 0 ? q0[static_cast<std::size_t>(v)] : q1[static_cast<std::size_t>(v)]);
        op = ops::run(op, in_mode(mode, 1));
        Values tokens;
        for (std::int64_t i = 0; i < 3; ++i)
          if (const double place = quant::get(op.accept_index, i); place >= 0)
            tokens.push_back(quant::get(op.predicts, static_cast<std::int64_t>(place)));
        ++counts[tokens];
      }
  return counts;
}

TEST(TreeSpeculativeSampling, OverAllCoinsTheEmittedTokensAreDistributedAsTheTarget) {
  // In sixteenths, so that every slice holds a whole number of parts.
  const std::vector<double> q0{3 / 16.0, 2 / 16.0, 8 / 16.0, 3 / 16.0}, q1{8 / 16.0, 4 / 16.0, 0, 4 / 16.0};
  constexpr int steps = 16;
  for (const Mode mode : all_modes) {
    const auto counts = emitted_over(q0, q1, steps, mode);
    std::map<double, double> first, after_2;
    for (const auto& [tokens, count] : counts) {
      first[tokens[0]] += count;
      if (tokens[0] == 2 && tokens.size() > 1) after_2[tokens[1]] += count;
    }
    const double all = steps * steps * steps;
    for (int v = 0; v < 4; ++v) {
      // What is drawn from the rest comes in halves of it, whole parts again.
      EXPECT_NEAR(first[v] / all, q0[static_cast<std::size_t>(v)], 1e-12) << name(mode) << " token " << v;
      EXPECT_NEAR(after_2[v] / first[2], q1[static_cast<std::size_t>(v)], 1e-12) << name(mode) << " token " << v << " after 2";
    }
  }
}

TEST(TreeSpeculativeSampling, NothingLeftToDrawGivesTheLastToken) {
  for (const Mode mode : all_modes) {
    Sampling op = call({{1, 2}, {0, 1}, {1, -1}, {-1, -1}}, 5, 3);
    quant::set(op.target_probs, 1, 0.5);
    quant::set(op.uniform_samples, 0, 0.75);
    quant::set(op.uniform_samples_for_final_sampling, 0, 0.25);
    op = ops::run(op, in_mode(mode));
    EXPECT_EQ(quant::get(op.predicts, 0), 4);
    // Not a number has no weight.
    op = call({{1, 1}, {0}, {-1}, {-1}}, 5, 3);
    quant::set(op.target_probs, 1, std::nan(""));
    quant::set(op.target_probs, 3, 0.5);
    EXPECT_EQ(quant::get(ops::run(op, in_mode(mode)).predicts, 0), 3);
  }
}

TEST(TreeSpeculativeSampling, ACoinOnABoundaryMayFallEitherWayAndWhatFollowsMust) {
  const NamedOp named{"tree_speculative_sampling_target_only"};
  Arguments inputs = named.case_of("B=1 D=8 V=40 S=4 tot=8 --attr threshold_acc=0.6");
  Sampling op = example_call();
  // 0.3 / 0.6: not within the error of a division, unless the coin is that.
  quant::set(op.uniform_samples, 0, static_cast<float>(0.5f / 0.6f));
  for (const auto& [name, tensor] :
       std::initializer_list<std::pair<const char*, Tensor>>{{"candidates", op.candidates},
                                                             {"retrive_index", op.retrive_index},
                                                             {"retrive_next_token", op.retrive_next_token},
                                                             {"retrive_next_sibling", op.retrive_next_sibling},
                                                             {"uniform_samples", op.uniform_samples},
                                                             {"uniform_samples_for_final_sampling", op.uniform_samples_for_final_sampling},
                                                             {"target_probs", op.target_probs},
                                                             {"draft_probs", op.draft_probs}})
    inputs.set(name, tensor);
  const auto outputs = named.outputs(inputs, in_mode(Mode::golden));
  ASSERT_EQ(quant::get(*find(outputs, "accept_index"), 1), 1);
  // The same call with a coin one step higher rejects node 1: an honest answer to this one, too.
  Arguments higher = inputs;
  Tensor coins = op.uniform_samples.clone();
  quant::set(coins, 0, std::nextafter(static_cast<float>(quant::get(coins, 0)), 1.0f));
  higher.set("uniform_samples", coins);
  auto other = named.outputs(higher, in_mode(Mode::golden));
  ASSERT_EQ(quant::get(*find(other, "accept_index"), 1), 2);
  EXPECT_EQ(named.failing(inputs, other), 0);
  // But then the rejected child's probability is noted.
  for (auto& [name, tensor] : other)
    if (name == "draft_probs") quant::set(tensor, 10, 0);
  EXPECT_GT(named.failing(inputs, other), 0);
  // A coin that is clear decides.
  Arguments clear = inputs;
  coins = coins.clone();
  quant::set(coins, 0, 0.8);
  clear.set("uniform_samples", coins);
  EXPECT_GT(named.failing(clear, named.outputs(higher, in_mode(Mode::golden))), 0);
}

TEST(TreeSpeculativeSampling, TokensBeyondTheVocabularyAreRefusedWhereALinkLeadsToThem) {
  const auto error_of = [](const Trees& trees) -> std::string {
    return message_in([&] { ops::run(call(trees, 5, 2), in_mode(Mode::fast)); });
  };
  EXPECT_EQ(error_of({{1, 3}, {99, 4, -7}, {1, -1, -1}, {-1, -1, -1}}), "");
  EXPECT_NE(error_of({{1, 3}, {99, 5, -7}, {1, -1, -1}, {-1, -1, -1}}).find("candidates holds 5 at element 1, expected 0 to 4"),
            std::string::npos);
}

// ---- draws

TEST(DrawOdds, AllowWhatTheBlocksSumsFindForAnyCoin) {
  for (const std::int64_t width : {1, 7, 32, 1000, 4097, 9000})
    for (const bool deterministic : {true, false}) {
      Tensor row(DType::f32, {width});
      oracle::fill(row, Role::probs, 0, "normal", 5, "row");
      const std::span<const float> weights(row.as<const float>(), static_cast<std::size_t>(width));
      const ops::DrawOdds odds(weights);
      const ops::BlockedRow draw(weights);
      const auto scan = deterministic ? ops::Scan::deterministic : ops::Scan::warp_scans;
      const float total = draw.sum(ops::Bar{0});
      int exact = 0;
      for (int i = 0; i <= 64; ++i) {
        const float coin = static_cast<float>(i) / 64;
        const std::int64_t found = draw.first_above(ops::Bar{0}, coin * total, scan);
        EXPECT_TRUE(found < 0 ? odds.may_find_none(static_cast<double>(coin)) : odds.may_find(static_cast<double>(coin), found))
            << width << " " << coin;
        exact += found == odds.first_above(static_cast<double>(coin));
      }
      EXPECT_GE(exact, 60);
    }
}

TEST(DrawOdds, AllowNoTokenFarFromTheCoin) {
  const std::vector<float> weights{0.25f, 0.0f, 0.25f, 0.5f};
  const ops::DrawOdds odds(weights);
  EXPECT_TRUE(odds.may_find(0.25, 2));
  EXPECT_TRUE(odds.may_find(0.25, 0)) << "the coin is on the boundary";
  EXPECT_FALSE(odds.may_find(0.25, 1)) << "without weight";
  EXPECT_FALSE(odds.may_find(0.25, 3));
  EXPECT_FALSE(odds.may_find(0.3, 0));
  EXPECT_FALSE(odds.may_find_none(0.9));
  EXPECT_TRUE(odds.may_find_none(1.0));
  EXPECT_TRUE(odds.may_find(1.0, 3)) << "sums may come out above";
}

}  // namespace
}  // namespace dodona
