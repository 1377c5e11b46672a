#include "ops/moe/align/prepare_moe_input.h"

#include <gtest/gtest.h>

#include "dodona/error.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

using Whole = std::vector<std::int64_t>;

Tensor ids_of(const Dims& shape, const Whole& values) {
  Tensor t(DType::i32, shape);
  for (std::size_t i = 0; i < values.size(); ++i) quant::set(t, static_cast<std::int64_t>(i), static_cast<double>(values[i]));
  return t;
}
Whole values_of(const Tensor& t) {
  Whole values;
  for (std::int64_t i = 0; i < t.elements(); ++i) values.push_back(static_cast<std::int64_t>(quant::get(t, i)));
  return values;
}
ops::PrepareMoeInput call(const Tensor& ids, std::int64_t experts) {
  ops::PrepareMoeInput op;
  op.topk_ids = ids;
  op.num_experts = experts;
  op.n = 3;
  op.k = 5;
  return op;
}
ops::PrepareMoeInput run(const Tensor& ids, std::int64_t experts, Mode mode = Mode::fast) {
  ops::PrepareMoeInput op = call(ids, experts);
  op.with_blockscale_offsets = true;
  Exec exec;
  exec.mode = mode;
  return ops::run(op, exec);
}

struct Row {
  const char* what;
  Dims shape;
  Whole ids;
  Whole offsets, tokens, rows;  // of three experts
};

TEST(PrepareMoeInput, IdsAreSortedByExpertInTheirOrder) {
  const Row table[] = {{"all used", {2, 2}, {2, 0, 0, 1}, {0, 2, 3, 4}, {0, 1, 1, 0}, {3, 0, 1, 2}},
                       {"one takes all", {3, 1}, {1, 1, 1}, {0, 0, 3, 3}, {0, 1, 2}, {0, 1, 2}},
                       {"one token", {1, 3}, {2, 1, 0}, {0, 1, 2, 3}, {0, 0, 0}, {2, 1, 0}},
                       {"an expert twice", {2, 2}, {1, 1, 1, 0}, {0, 1, 4, 4}, {1, 0, 0, 1}, {1, 2, 3, 0}},
                       {"ids of no expert", {2, 2}, {-1, 0, 3, 0}, {0, 2, 2, 2}, {0, 1, 0, 0}, {0, 0, 0, 1}},
                       {"no token", {0, 4}, {}, {0, 0, 0, 0}, {}, {}}};
  for (const Row& row : table)
    for (const Mode mode : all_modes) {
      const auto op = run(ids_of(row.shape, row.ids), 3, mode);
      EXPECT_EQ(values_of(op.expert_offsets), row.offsets) << row.what;
      EXPECT_EQ(values_of(op.input_permutation), row.tokens) << row.what;
      EXPECT_EQ(values_of(op.output_permutation), row.rows) << row.what;
    }
}

TEST(PrepareMoeInput, ProblemSizesAreRowsColumnsAndDepthOfBothProducts) {
  for (const Mode mode : all_modes) {
    const auto op = run(ids_of({2, 2}, {1, 0, 1, 1}), 2, mode);
    EXPECT_EQ(values_of(op.problem_sizes1), Whole({1, 6, 5, 3, 6, 5}));
    EXPECT_EQ(values_of(op.problem_sizes2), Whole({1, 5, 3, 3, 5, 3}));
  }
}

TEST(PrepareMoeInput, BlockscaleOffsetsRoundEachExpertUpTo128Rows) {
  Whole ids(130, 0);
  ids.back() = 2;
  for (const Mode mode : all_modes) EXPECT_EQ(values_of(run(ids_of({130, 1}, ids), 3, mode).blockscale_offsets), Whole({0, 256, 256, 384}));
}

TEST(PrepareMoeInput, BlockscaleOffsetsAreMadeWhenAskedForOrGiven) {
  ops::PrepareMoeInput op = call(ids_of({1, 1}, {0}), 1);
  EXPECT_FALSE(ops::run(op, {}).blockscale_offsets.defined());
  op.blockscale_offsets = Tensor(DType::i32, {2});
  EXPECT_EQ(values_of(ops::run(op, {}).blockscale_offsets), Whole({0, 128}));
}

TEST(PrepareMoeInput, WhatIdsOfNoExpertLeaveUnwrittenIsNotCompared) {
  const auto op = run(ids_of({2, 2}, {-1, 0, 3, 0}), 3);
  Arguments inputs;
  inputs.set("topk_ids", op.topk_ids);
  for (const auto& [name, value] : {std::pair("num_experts", 3), {"n", 3}, {"k", 5}}) inputs.set_attr(name, std::int64_t{value});
  const oracle::NamedTensors outputs{{"expert_offsets", op.expert_offsets},
                                     {"problem_sizes1", op.problem_sizes1},
                                     {"problem_sizes2", op.problem_sizes2},
                                     {"input_permutation", op.input_permutation},
                                     {"output_permutation", op.output_permutation}};
  quant::set(op.output_permutation, 0, -77), quant::set(op.input_permutation, 3, 12345);
  EXPECT_EQ(oracle::judge(registry().at("prepare_moe_input"), inputs, outputs, {}).outcome, oracle::Outcome::pass);
  quant::set(op.input_permutation, 1, 0);
  EXPECT_EQ(oracle::judge(registry().at("prepare_moe_input"), inputs, outputs, {}).failing(), 1);
}

TEST(PrepareMoeInput, StridedIdsAreRead) {
  const Tensor wide = ids_of({2, 3}, {1, 0, 9, 0, 0, 9});
  for (const Mode mode : all_modes) EXPECT_EQ(values_of(run(wide.slice(1, 0, 2), 2, mode).output_permutation), Whole({3, 0, 1, 2}));
}

TEST(PrepareMoeInput, SizesThatOffsetsCannotHoldAreRejected) {
  ops::PrepareMoeInput op = call(ids_of({1, 1}, {0}), 1);
  op.n = 1 << 30;
  EXPECT_THROW(ops::run(op, {}), Error);
}

}  // namespace
}  // namespace dodona
