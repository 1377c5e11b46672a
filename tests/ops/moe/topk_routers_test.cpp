// Rules of topk_softmax, topk_sigmoid and kimi_k2_moe_fused_gate: what is chosen, how ties fall, what weights are, what their judges
// accept.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "dodona/error.h"
#include "ops/moe/routing/kimi_k2_moe_fused_gate.h"
#include "ops/moe/routing/topk_sigmoid.h"
#include "ops/moe/routing/topk_softmax.h"
#include "ops/routing/hopper_rows.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

template <class Op>
Op router(const Values& logits, std::int64_t topk, const Values& bias = {}, DType type = DType::f32) {
  const auto experts = static_cast<std::int64_t>(logits.size());
  Op op;
  op.gating_output = tensor_of(type, {1, experts}, logits);
  if (!bias.empty()) op.correction_bias = tensor_of(DType::f32, {experts}, bias);
  op.topk_weights = Tensor(DType::f32, {1, topk});
  return op;
}
constexpr auto softmax = router<ops::TopkSoftmax>;
constexpr auto sigmoid = router<ops::TopkSigmoid>;

ops::KimiK2MoeFusedGate kimi(std::int64_t tokens, const Values& row, std::int64_t topk) {
  ops::KimiK2MoeFusedGate op;
  op.input_tensor = Tensor(DType::f32, {tokens, 384});
  for (std::int64_t i = 0; i < tokens * 384; ++i) quant::set(op.input_tensor, i, row[static_cast<std::size_t>(i % 384)]);
  op.bias = filled(DType::f32, {384}, 0.0);
  op.topk = topk;
  return op;
}

template <class Op>
void expect_route(const Op& op, const Values& ids, const Values& weights, double tolerance = 1e-6) {
  for (const Mode mode : all_modes) {
    const Op run = ops::run(op, in_mode(mode));
    EXPECT_EQ(values_of(run.topk_ids), ids) << name(mode);
    for (std::size_t k = 0; k < weights.size(); ++k)
      EXPECT_NEAR(quant::get(run.topk_weights, static_cast<std::int64_t>(k)), weights[k], tolerance) << name(mode);
  }
}

/// Whether the judge takes these ids with the weights that golden mode would give for them in the place of `op`'s own.
template <class Op>
std::int64_t failing(const char* name, const Op& op, const Values& ids, const Values& weights) {
  Arguments inputs;
  inputs.set("gating_output", op.gating_output);
  if (op.correction_bias.defined()) inputs.set("correction_bias", op.correction_bias);
  inputs.set("topk_weights", op.topk_weights);
  const auto topk = static_cast<std::int64_t>(ids.size());
  return oracle::judge(registry().at(name), inputs,
                       {{"topk_weights", tensor_of(DType::f32, {1, topk}, weights)}, {"topk_ids", tensor_of(DType::i32, {1, topk}, ids)}},
                       {})
      .failing();
}

TEST(TopkSoftmax, WeightsAreSharesOfAllAndRenormalizedOnesSumToOne) {
  const double sum = 1 + std::exp(1.0) + std::exp(2.0) + std::exp(3.0);
  auto op = softmax({0, 3, 1, 2}, 2, {}, DType::f32);
  expect_route(op, {1, 3}, {std::exp(3.0) / sum, std::exp(2.0) / sum});
  op.renormalize = true;
  const double share = 1 / (1 + std::exp(-1.0));
  expect_route(op, {1, 3}, {share, 1 - share});
}

TEST(TopkSoftmax, TheBiasIsAddedToLogitsAndBehindTheCap) {
  auto op = softmax({8, 0, 0, 0}, 1, {0, 1, 0, 0}, DType::f32);
  op.moe_softcapping = 0.5;  // 8 becomes half of tanh(16) = 0.5
  const double sum = std::exp(0.5) + std::exp(1.0) + 2;
  expect_route(op, {1}, {std::exp(1.0) / sum}, 1e-3);
}

TEST(TopkSoftmax, TiesFallToTheLowerIndexInRowsOfOneWarp) {
  expect_route(softmax(Values(64, 0.25), 3, {}, DType::bf16), {0, 1, 2}, {1 / 64.0, 1 / 64.0, 1 / 64.0});
}

/// Rows of 9 tokens, in multiples of 1/8 below `levels`.
template <class Op>
Op router_of_levels(std::int64_t experts, std::int64_t topk, std::uint64_t levels) {
  Op op;
  op.gating_output = Tensor(DType::f32, {9, experts});
  std::uint64_t state = levels * 977 + static_cast<std::uint64_t>(experts);
  for (std::int64_t i = 0; i < op.gating_output.elements(); ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    op.gating_output.template as<float>()[i] = static_cast<float>((state >> 33) % levels) / 8;
  }
  op.topk_weights = Tensor(DType::f32, {9, topk});
  return op;
}
template <class Op>
void expect_order_of_keys(std::int64_t experts, std::int64_t topk, std::uint64_t levels) {
  const auto op = router_of_levels<Op>(experts, topk, levels);
  const Op run = ops::run(op, in_mode(Mode::fast));
  for (std::int64_t t = 0; t < 9; ++t) {
    const float* const row = op.gating_output.template as<float>() + t * experts;
    std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return row[a] > row[b]; });
    for (std::int64_t k = 0; k < topk; ++k)
      ASSERT_EQ(run.topk_ids.template as<std::int32_t>()[t * topk + k], order[static_cast<std::size_t>(k)])
          << experts << " experts, " << levels << " levels, token " << t;
  }
}

TEST(TopkRouters, HoweverManyKeysAreEqualTheBestAreInOrder) {
  for (const std::int64_t experts : {4, 16, 48, 64, 100, 256, 384, 1000})
    for (const std::int64_t topk : {1, 4, 8, 16, 30})
      for (const std::uint64_t levels : {1, 2, 9, 60, 100})
        if (topk <= experts) {
          expect_order_of_keys<ops::TopkSoftmax>(experts, topk, levels);
          expect_order_of_keys<ops::TopkSigmoid>(experts, topk, levels);
        }
}

TEST(TopkSoftmax, SharesThatUnderflowTie) {
  expect_route(softmax({-300, 0, -200, -250}, 4, {}, DType::f32), {1, 0, 2, 3}, {1, 0, 0, 0});
}

TEST(TopkSoftmax, InRowsOfABlockTheOrderOfEqualsIsOpenAndTheKernelKeepsLaterOnes) {
  const auto op = softmax(Values(48, 0.5), 2, {}, DType::f32);
  const double share = 1 / 48.0;
  for (const Mode mode : {Mode::golden, Mode::fast}) EXPECT_EQ(values_of(ops::run(op, in_mode(mode)).topk_ids), (Values{0, 1}));
  const Values kernel = values_of(ops::run(op, in_mode(Mode::hopper)).topk_ids);
  EXPECT_GT(kernel[0], 15);
  EXPECT_EQ(failing("topk_softmax", op, kernel, {share, share}), 0);
  EXPECT_EQ(failing("topk_softmax", softmax(Values(64, 0.5), 2, {}, DType::f32), {7, 8}, {1 / 64.0, 1 / 64.0}), 2);
}

TEST(TopkSoftmax, NeighbouringLogitsMayChangePlacesAndOthersNot) {
  Values logits(64, -3);
  logits[3] = 1;
  logits[9] = 1 + 0x1p-23;
  const auto op = softmax(logits, 2, {}, DType::f32);
  double sum = 0;
  for (const double x : logits) sum += std::exp(x);
  const double share = std::exp(1.0) / sum, small = std::exp(-3.0) / sum;
  EXPECT_EQ(failing("topk_softmax", op, {9, 3}, {share, share}), 0);
  EXPECT_EQ(failing("topk_softmax", op, {3, 9}, {share, share}), 0);
  EXPECT_GT(failing("topk_softmax", op, {9, 0}, {share, small}), 0);
}

TEST(TopkSoftmax, RowsWithoutASoftmaxAreUnspecifiedAndHaveIdsOfExperts) {
  for (const Values& logits : {Values{nan, 1, 2, 3}, Values{infinity, 1, 2, 3}, Values(4, -infinity)}) {
    const auto op = softmax(logits, 2, {}, DType::f32);
    for (const Mode mode : all_modes) {
      const auto run = ops::run(op, in_mode(mode));
      for (std::int64_t k = 0; k < 2; ++k) {
        EXPECT_GE(quant::get(run.topk_ids, k), 0);
        EXPECT_LT(quant::get(run.topk_ids, k), 4);
      }
    }
    EXPECT_EQ(failing("topk_softmax", op, {0, 0}, {nan, -10000}), 0);
  }
  // What upstream's kernel gives: expert 0 in every column.
  EXPECT_EQ(values_of(ops::run(softmax({1, nan, 2, 3}, 2, {}, DType::f32), in_mode(Mode::hopper)).topk_ids), (Values{0, 0}));
}

TEST(TopkSoftmax, OneLogitOfMinusInfinityIsLast) {
  expect_route(softmax({-infinity, 0, -infinity, 0}, 3, {}, DType::f32), {1, 3, 0}, {0.5, 0.5, 0});
}

TEST(TopkSigmoid, WeightsLoseWhatALargeBiasCutsOff) {
  const double score = 1 / (1 + std::exp(-1.0));
  for (const Mode mode : all_modes) {
    const auto run = ops::run(sigmoid({1, 0}, 1, {1024, 1024}, DType::f32), in_mode(mode));
    const auto weight = static_cast<float>(quant::get(run.topk_weights, 0));
    EXPECT_EQ(weight, static_cast<float>(score + 1024) - 1024.0f) << name(mode);
    EXPECT_NE(weight, static_cast<float>(score));
  }
}

TEST(TopkSigmoid, TiesFallToTheLowerIndexInRowsOfAnySize) {
  for (const std::size_t experts : {64u, 48u, 300u}) expect_route(sigmoid(Values(experts, 1), 3, {}, DType::f32), {0, 1, 2}, {});
}

TEST(TopkSigmoid, WhereTheKernelTakesAnExpertTwiceTheRowIsUnspecified) {
  // 48 experts: the kernel's search begins at -1, below which it finds expert 0 again and again.
  const auto op = sigmoid(Values(48, 0), 2, Values(48, -3), DType::f32);
  EXPECT_EQ(values_of(ops::run(op, in_mode(Mode::golden)).topk_ids), (Values{0, 1}));
  EXPECT_EQ(values_of(ops::run(op, in_mode(Mode::hopper)).topk_ids), (Values{0, 0}));
  EXPECT_EQ(failing("topk_sigmoid", op, {0, 0}, {2, 2}), 0);
  EXPECT_GT(failing("topk_sigmoid", sigmoid(Values(64, 0), 2, Values(64, -3), DType::f32), {0, 0}, {0.5, 0.5}), 0);
}

TEST(KimiGate, WeightsAreScoresOverTheirSumTimesTheFactorWhereItIsApplied) {
  Values row(384, -20);
  row[383] = 1;
  row[5] = 0;
  const double a = 1 / (1 + std::exp(-1.0)), b = 0.5;
  auto op = kimi(1, row, 2);
  op.routed_scaling_factor = 2.5;
  expect_route(op, {383, 5}, {a / (a + b), b / (a + b)});
  op.apply_routed_scaling_factor_on_output = true;
  expect_route(op, {383, 5}, {2.5 * a / (a + b), 2.5 * b / (a + b)});
  op.renormalize = false;
  expect_route(op, {383, 5}, {a, b});
}

TEST(KimiGate, UpTo512TokensTheKernelKeepsLanesByTheirReversedBits) {
  Values row(384, -20);
  row[1] = row[16] = row[48] = 2;  // 48 is lane 16 of another warp
  EXPECT_EQ(values_of(ops::run(kimi(1, row, 2), in_mode(Mode::hopper)).topk_ids), (Values{16, 1}));
  EXPECT_EQ(quant::get(ops::run(kimi(513, row, 2), in_mode(Mode::hopper)).topk_ids, 0), 1);
  EXPECT_EQ(values_of(ops::run(kimi(1, row, 2), in_mode(Mode::golden)).topk_ids), (Values{1, 16}));
}

TEST(KimiGate, TheKernelForFewTokensHasRoomForEightExperts) {
  EXPECT_THROW(ops::run(kimi(1, Values(384, 0), 9), in_mode(Mode::hopper)), Error);
  EXPECT_NO_THROW(ops::run(kimi(513, Values(384, 0), 9), in_mode(Mode::hopper)));
}

TEST(Routers, MoreColumnsThanExpertsAreRefused) {
  for (const auto& attempt : {+[] { ops::run(softmax(Values(4, 0), 5, {}, DType::f32), in_mode(Mode::fast)); },
                              +[] { ops::run(sigmoid(Values(4, 0), 5, {}, DType::f32), in_mode(Mode::fast)); },
                              +[] { ops::run(kimi(1, Values(384, 0), 385), in_mode(Mode::fast)); }}) {
    const Error error = error_from([&] { attempt(); });
    EXPECT_NE(std::string(error.what()).find("topk"), std::string::npos);
  }
}

TEST(HopperRows, ColumnsAreDealtOutInVectorsAndSummedByButterflies) {
  Values columns(256);
  std::vector<float> row;
  for (std::size_t i = 0; i < 256; ++i) row.push_back(static_cast<float>(i));
  EXPECT_EQ(ops::WarpRow(DType::f32, row).sum(), 255 * 128.0f);
  // 2^24 swallows ones one by one, but not the sum that the other thread made of them first.
  std::vector<float> uneven(8, 1.0f);
  uneven[0] = 0x1p24f;
  EXPECT_EQ(ops::WarpRow(DType::f32, uneven).sum(), 0x1p24f + 4);
  EXPECT_EQ(ops::WarpRow(DType::bf16, uneven).sum(), 0x1p24f);
}

TEST(HopperRows, PairsThatTieAreThoseThatStandLater) {
  std::vector<float> row(40, 0.0f);
  row[3] = row[35] = 1;
  const auto picks = ops::BlockRow(row).take_pairs(2);
  EXPECT_EQ(picks[0].expert, 35);
  EXPECT_EQ(picks[1].expert, 3);
  EXPECT_EQ(ops::BlockRow(row).take(1)[0].expert, 3);
}

}  // namespace
}  // namespace dodona
