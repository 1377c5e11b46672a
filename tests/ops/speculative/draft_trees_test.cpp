// Trees of draft tokens: built from a beam, read back from a mask, and the path of them that a target takes greedily.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "dodona/error.h"
#include "ops/speculative/build_tree_kernel_efficient.h"
#include "ops/speculative/reconstruct_indices_from_tree_mask.h"
#include "ops/speculative/segment_packbits.h"
#include "ops/speculative/verify_tree_greedy.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

// ---- build_tree_kernel_efficient

struct Beam {
  std::int64_t topk, depth, nodes;
  Values parents, selected, lengths;
};

ops::BuildTreeKernelEfficient call(const Beam& beam, std::int64_t mode) {
  ops::BuildTreeKernelEfficient op;
  const auto requests = static_cast<std::int64_t>(beam.lengths.size());
  op.parent_list = tensor_of(DType::i64, {requests, static_cast<std::int64_t>(beam.parents.size()) / requests}, beam.parents);
  op.selected_index = tensor_of(DType::i64, {requests, beam.nodes - 1}, beam.selected);
  op.verified_seq_len = tensor_of(DType::i64, {requests}, beam.lengths);
  op.topk = beam.topk, op.depth = beam.depth, op.draft_token_num = beam.nodes, op.tree_mask_mode = mode;
  std::int64_t elements = mode == 2 ? requests * beam.nodes * (beam.nodes > 16 ? 4 : beam.nodes > 8 ? 2 : 1) : 0;
  if (mode != 2)
    for (const double length : beam.lengths) elements += beam.nodes * (beam.nodes + (mode == 0 ? static_cast<std::int64_t>(length) : 0));
  op.tree_mask = filled(mode == 2 ? DType::u8 : DType::boolean, {elements}, 0);
  return op;
}

/// Two beams, three steps: 1 and 2 below the root, 3 and 4 below 1, 5 below 2, 6 below 3, 7 below 5.
const Beam example{2, 3, 8, {-1, 0, 1, 2, 4}, {0, 1, 2, 3, 4, 6, 8}, {4}};

TEST(BuildTree, ABeamsTreeHasItsLinksPositionsAndMask) {
  const std::vector<std::uint64_t> rows{0x01, 0x03, 0x05, 0x0B, 0x13, 0x25, 0x4B, 0xA5};
  for (const Mode mode : all_modes) {
    for (const std::int64_t mask_mode : {0, 1, 2}) {
      const auto op = ops::run(call(example, mask_mode), in_mode(mode));
      EXPECT_EQ(values_of(op.positions), (Values{4, 5, 5, 6, 6, 6, 7, 7}));
      EXPECT_EQ(values_of(op.retrive_index), (Values{0, 1, 2, 3, 4, 5, 6, 7}));
      EXPECT_EQ(values_of(op.retrive_next_token), (Values{1, 3, 5, 6, -1, 7, -1, -1}));
      EXPECT_EQ(values_of(op.retrive_next_sibling), (Values{-1, 2, -1, 4, -1, -1, -1, -1}));
      const std::int64_t before = mask_mode == 0 ? 4 : 0;
      for (std::size_t t = 0; t < 8; ++t)
        if (mask_mode == 2) {
          EXPECT_EQ(quant::get_bits(op.tree_mask, static_cast<std::int64_t>(t)), rows[t]);
        } else {
          for (std::int64_t j = 0; j < before + 8; ++j)
            EXPECT_EQ(quant::get(op.tree_mask, static_cast<std::int64_t>(t) * (before + 8) + j),
                      j < before ? 1 : static_cast<double>(rows[t] >> (j - before) & 1))
                << mask_mode << " row " << t << " column " << j;
        }
    }
  }
}

TEST(BuildTree, UpstreamsOwnExample) {
  const Values parents{-1, 0, 1, 2, 3, 4, 8, 12, 16, 20, 24, 28, 32, -1, 0, 1, 2, 3, 4, 5, 6, 7, 24, 20, 28, 32};
  const Beam beam{4, 4, 8, parents, {0, 1, 4, 8, 20, 24, 36, 0, 4, 5, 6, 7, 24, 36}, {5, 10}};
  const auto op = ops::run(call(beam, 0), in_mode(Mode::fast));
  EXPECT_EQ(values_of(op.positions), (Values{5, 6, 6, 7, 7, 8, 8, 9, 10, 11, 12, 12, 12, 12, 13, 14}));
  EXPECT_EQ(values_of(op.retrive_next_token), (Values{1, 3, 4, 5, 6, 7, -1, -1, 1, 2, -1, 6, -1, -1, 7, -1}));
  EXPECT_EQ(values_of(op.retrive_next_sibling), (Values{-1, 2, -1, -1, -1, -1, -1, -1, -1, -1, 3, 4, 5, -1, -1, -1}));
}

TEST(BuildTree, OneStepReadsNoParents) {
  const auto op = call({3, 1, 4, {77}, {0, 1, 2}, {7}}, 1);
  EXPECT_EQ(values_of(ops::run(op, in_mode(Mode::fast)).retrive_next_sibling), (Values{-1, 2, 3, -1}));
}

TEST(BuildTree, ParentsMayComeAfterTheirChildren) {
  // Node 1 is candidate 2, a child of candidate 0, which is node 2.
  const Beam beam{2, 2, 3, {-1, 0, 1}, {2, 0}, {9}};
  const auto op = ops::run(call(beam, 2), in_mode(Mode::fast));
  EXPECT_EQ(values_of(op.positions), (Values{9, 11, 10}));
  EXPECT_EQ(values_of(op.tree_mask), (Values{1, 7, 5}));
  EXPECT_EQ(values_of(op.retrive_next_token), (Values{2, -1, 1}));
}

TEST(BuildTree, WhatIsNoTreeIsRefusedByName) {
  const auto with = [](Values parents, Values selected) {
    Beam beam = example;
    beam.parents = std::move(parents), beam.selected = std::move(selected);
    return error_of(call(beam, 1));
  };
  EXPECT_EQ(with(example.parents, example.selected), "");
  const std::pair<std::string, const char*> bad[] = {
      {with(example.parents, {1, 2, 3, 4, 5, 6, 7}), "selected_index holds 2 at element 1, whose parent is not selected"},
      {with({-1, 0, 1, 99, 4}, example.selected), "selected_index holds 6 at element 5, whose parent is not selected"},
      {with({-1, 0, 1, 6, 4}, example.selected), "selected_index holds 6 at element 5, which is its own ancestor"},
      {with({-1, 0, 1, 8, 6}, example.selected), "which is its own ancestor"},
      {with(example.parents, {0, 1, 2, 3, 4, 6, 10}), "selected_index holds 10 at element 6, expected 0 to 9"},
      {with(example.parents, {-1, 1, 2, 3, 4, 6, 8}), "selected_index holds -1 at element 0"},
  };
  for (const auto& [error, text] : bad) EXPECT_NE(error.find(text), std::string::npos) << error << " instead of " << text;
  Beam beam = example;
  beam.lengths = {-1};
  auto op = call(example, 0);
  const auto longer = filled(DType::boolean, {100}, 0);
  op.tree_mask = longer;
  EXPECT_EQ(quant::get(ops::run(op, in_mode(Mode::fast)).tree_mask, 99), 1) << "what lies behind is true as well";
  op = call(example, 0);
  op.verified_seq_len = tensor_of(DType::i64, {1}, {-1});
  EXPECT_NE(error_of(op).find("verified_seq_len holds -1 at element 0"), std::string::npos);
  op.verified_seq_len = tensor_of(DType::i64, {1}, {5});
  EXPECT_NE(error_of(op).find("tree_mask has shape [96], expected [104] or more"), std::string::npos) << error_of(op);
  op.verified_seq_len = tensor_of(DType::i64, {1}, {1e9});
  EXPECT_NE(error_of(op).find("verified_seq_len asks for a mask of more than 2147483647"), std::string::npos) << error_of(op);
  op = call(example, 2);
  op.tree_mask = filled(DType::boolean, {8}, 0);
  EXPECT_NE(error_of(op).find("tree_mask has dtype bool, expected u8 in mode 2"), std::string::npos) << error_of(op);
}

// ---- verify_tree_greedy

struct Trees {
  Dims shape;
  Values candidates, next_token, next_sibling;
};

ops::VerifyTreeGreedy call(const Trees& trees, const Values& target, std::int64_t width, std::int64_t places) {
  ops::VerifyTreeGreedy op;
  op.candidates = tensor_of(DType::i64, trees.shape, trees.candidates);
  op.retrive_next_token = tensor_of(DType::i64, trees.shape, trees.next_token);
  op.retrive_next_sibling = tensor_of(DType::i64, trees.shape, trees.next_sibling);
  op.target_predict = tensor_of(DType::i64, trees.shape, target);
  op.retrive_index = Tensor(DType::i64, trees.shape);
  for (std::int64_t i = 0; i < op.retrive_index.elements(); ++i) op.retrive_index.as<std::int64_t>()[i] = i;
  op.predicts = filled(DType::i32, {places}, 55);
  op.accept_index = filled(DType::i32, {trees.shape[0], width}, 55);
  return op;
}

const Trees upstreams{{2, 6},
                      {0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12},
                      {1, 2, -1, 4, 5, -1, 4, 2, 3, -1, 5, -1},
                      {-1, 3, -1, -1, -1, -1, -1, -1, -1, -1, 1, -1}};

TEST(VerifyTreeGreedy, TheFirstChildThatTheTargetChoosesIsAccepted) {
  for (const Mode mode : all_modes) {
    const auto op = ops::run(call(upstreams, {3, 18, 18, 4, 5, 18, 11, 18, 18, 18, 12, 18}, 4, 12), in_mode(mode));
    EXPECT_EQ(values_of(op.predicts), (Values{3, -1, -1, 4, 5, 18, 11, -1, -1, -1, 12, 18}));
    EXPECT_EQ(values_of(op.accept_index), (Values{0, 3, 4, 5, 6, 10, 11, -1}));
    EXPECT_EQ(values_of(op.accept_token_num), (Values{3, 2}));
  }
}

TEST(VerifyTreeGreedy, NoMoreAreAcceptedThanThereIsRoomFor) {
  const auto op = ops::run(call(upstreams, {3, 18, 18, 4, 5, 18, 11, 18, 18, 18, 12, 18}, 2, 12), in_mode(Mode::fast));
  EXPECT_EQ(values_of(op.accept_index), (Values{0, 3, 6, 10}));
  EXPECT_EQ(values_of(op.predicts), (Values{3, -1, -1, 4, -1, -1, 11, -1, -1, -1, 12, -1}));
}

TEST(VerifyTreeGreedy, LinksThatLeadNowhereOrNeverEndAreRefused) {
  const Values target(12, 18);
  const auto broken = [&](auto change) {
    auto op = call(upstreams, target, 4, 12);
    change(op);
    return error_of(op);
  };
  const auto set = [](Tensor& tensor, std::int64_t i, std::int64_t value) { tensor.as<std::int64_t>()[i] = value; };
  EXPECT_NE(broken([&](auto& op) {
              set(op.retrive_next_token, 7, 6);
            }).find("retrive_next_token holds 6 at element 7, expected -1 or a node, 0 to 5"),
            std::string::npos);
  EXPECT_NE(broken([&](auto& op) { set(op.retrive_next_sibling, 3, -2); }).find("retrive_next_sibling holds -2 at element 3"),
            std::string::npos);
  EXPECT_NE(broken([&](auto& op) {
              set(op.retrive_next_sibling, 3, 1);
            }).find("retrive_next_sibling holds 3 at element 1, expected siblings that end"),
            std::string::npos);
  EXPECT_NE(broken([&](auto& op) { set(op.retrive_index, 0, 12); }).find("retrive_index holds 12 at element 0, expected 0 to 11"),
            std::string::npos);
  EXPECT_NE(
      broken([&](auto& op) { op.predicts = filled(DType::i32, {11}, 0); }).find("retrive_index holds 11 at element 11, expected 0 to 10"),
      std::string::npos);
  // A child that is its own parent ends with the room for accepted ones.
  EXPECT_EQ(broken([&](auto& op) {
              set(op.retrive_next_token, 3, 3);
              op.target_predict = tensor_of(DType::i64, {2, 6}, Values(12, 3));
            }),
            "");
}

// ---- reconstruct_indices_from_tree_mask

ops::ReconstructIndicesFromTreeMask call_mask(std::int64_t requests, std::int64_t nodes, const Values& mask, const Values& lengths) {
  ops::ReconstructIndicesFromTreeMask op;
  op.tree_mask = tensor_of(DType::boolean, {requests * nodes * nodes}, mask);
  op.verified_seq_len = tensor_of(DType::i64, {requests}, lengths);
  op.batch_size = requests, op.draft_token_num = nodes;
  return op;
}

TEST(ReconstructIndices, UpstreamsOwnExample) {
  const auto op = ops::run(call_mask(1, 4, {1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 1}, {12}), in_mode(Mode::fast));
  EXPECT_EQ(values_of(op.positions), (Values{12, 13, 13, 14}));
  EXPECT_EQ(values_of(op.retrive_next_token), (Values{1, -1, 3, -1}));
  EXPECT_EQ(values_of(op.retrive_next_sibling), (Values{-1, 2, -1, -1}));
}

TEST(ReconstructIndices, ABuiltTreeComesBackFromItsMask) {
  const NamedOp build{"build_tree_kernel_efficient"};
  Arguments inputs = build.case_of("B=5 n=1280 --attr topk=8 --attr depth=4 --attr draft_token_num=16 --attr tree_mask_mode=1");
  const auto built = build.outputs(inputs, in_mode(Mode::fast));
  ops::ReconstructIndicesFromTreeMask op;
  op.tree_mask = *find(built, "tree_mask");
  op.verified_seq_len = *inputs.find("verified_seq_len");
  op.batch_size = 5, op.draft_token_num = 16;
  op = ops::run(op, in_mode(Mode::fast));
  EXPECT_TRUE(same_bits(op.positions, *find(built, "positions")));
  EXPECT_TRUE(same_bits(op.retrive_index, *find(built, "retrive_index")));
  EXPECT_TRUE(same_bits(op.retrive_next_token, *find(built, "retrive_next_token")));
  EXPECT_TRUE(same_bits(op.retrive_next_sibling, *find(built, "retrive_next_sibling")));
}

TEST(ReconstructIndices, AnyMaskIsReadByTheRule) {
  std::mt19937 random(7);
  const std::int64_t n = 13;
  for (int round = 0; round < 50; ++round) {
    Values mask(static_cast<std::size_t>(n * n));
    for (double& m : mask) m = random() % 3 == 0;
    const auto m = [&](std::int64_t t, std::int64_t i) { return mask[static_cast<std::size_t>(t * n + i)] != 0; };
    const auto op = ops::run(call_mask(1, n, mask, {0}), in_mode(Mode::fast));
    for (std::int64_t t = 0; t < n; ++t) {
      std::int64_t depth = 0, parent = -1, child = -1, sibling = -1;
      for (std::int64_t i = 0; i < t; ++i)
        if (m(t, i)) ++depth, parent = i;
      for (std::int64_t i = n - 1; i > t; --i) {
        if (m(i, t)) child = i;
        bool between = false;
        for (std::int64_t j = parent + 1; j < i; ++j) between = between || m(i, j);
        if (parent >= 0 && m(i, parent) && !between) sibling = i;
      }
      EXPECT_EQ(quant::get(op.positions, t), static_cast<double>(depth));
      EXPECT_EQ(quant::get(op.retrive_next_token, t), static_cast<double>(child)) << t;
      EXPECT_EQ(quant::get(op.retrive_next_sibling, t), static_cast<double>(sibling)) << t;
    }
  }
}

// ---- segment_packbits

TEST(SegmentPackbits, EachSegmentBeginsAByteAndNothingElseIsWritten) {
  ops::SegmentPackbits op;
  op.x = tensor_of(DType::boolean, {12}, {1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0});
  op.x.as<std::uint8_t>()[0] = 2;  // any byte but 0
  op.input_indptr = tensor_of(DType::i32, {4}, {0, 9, 9, 11});
  op.output_indptr = tensor_of(DType::i32, {4}, {1, 3, 5, 6});
  op.batch_size = 3;
  for (const Mode mode : all_modes) {
    op.y = filled(DType::u8, {7}, 77);
    EXPECT_EQ(values_of(ops::run(op, in_mode(mode)).y), (Values{77, 0xFD, 0x01, 77, 77, 0x02, 77}));
  }
  op.output_indptr = tensor_of(DType::i32, {4}, {0, 1, 2, 3});
  EXPECT_NE(error_of(op).find("output_indptr holds 1 at element 1, expected at least 2"), std::string::npos) << error_of(op);
  op.output_indptr = tensor_of(DType::i32, {4}, {0, 2, 7, 8});
  EXPECT_NE(error_of(op).find("output_indptr holds 7 at element 2, expected room for 1 bytes in the 7 of y"), std::string::npos);
  op.input_indptr = tensor_of(DType::i32, {4}, {0, 9, 8, 11});
  EXPECT_NE(error_of(op).find("input_indptr holds 8 at element 2, expected at least the 9 before it"), std::string::npos);
  op.input_indptr = tensor_of(DType::i32, {4}, {0, 9, 9, 13});
  EXPECT_NE(error_of(op).find("input_indptr holds 13 at element 3, expected at most the 12 elements of x"), std::string::npos)
      << error_of(op);
}

}  // namespace
}  // namespace dodona
