// Rules of moe_fused_gate: what is chosen, how ties fall, what weights are, and what its judge accepts.
#include "ops/moe/routing/moe_fused_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "dodona/error.h"
#include "oracle/judge/judge.h"
#include "quant/element.h"
#include "tests/errors.h"

namespace dodona {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr Mode every_mode[] = {Mode::golden, Mode::fast, Mode::hopper};

using Values = std::vector<double>;
using Ids = std::vector<std::int64_t>;

/// One token.
struct Gate {
  Values logits, bias;  ///< no bias stands for zeros
  std::int64_t groups, kept, topk, shared = 0;
  double factor = 0.0;
  bool apply = false;
  DType type = DType::f32;
};

Tensor tensor_of(DType type, const Values& values, const Dims& shape) {
  Tensor t(type, shape);
  for (std::size_t i = 0; i < values.size(); ++i) quant::set(t, static_cast<std::int64_t>(i), values[i]);
  return t;
}

ops::MoeFusedGate op_of(const Gate& gate) {
  const auto experts = static_cast<std::int64_t>(gate.logits.size());
  const Values bias = gate.bias.empty() ? Values(gate.logits.size(), 0.0) : gate.bias;
  return {.input_tensor = tensor_of(gate.type, gate.logits, {1, experts}),
          .bias = tensor_of(gate.type, bias, {experts}),
          .topk_weights = {},
          .topk_ids = {},
          .num_expert_group = gate.groups,
          .topk_group = gate.kept,
          .topk = gate.topk,
          .num_fused_shared_experts = gate.shared,
          .routed_scaling_factor = gate.factor,
          .apply_routed_scaling_factor_on_output = gate.apply};
}

struct Routing {
  Ids ids;
  Values weights;
};

Routing route(const Gate& gate, Mode mode) {
  Exec exec;
  exec.mode = mode;
  const auto op = ops::run(op_of(gate), exec);
  Routing routing;
  for (std::int64_t k = 0; k < gate.topk; ++k) {
    routing.ids.push_back(op.topk_ids.as<std::int32_t>()[k]);
    routing.weights.push_back(op.topk_weights.as<float>()[k]);
  }
  return routing;
}

void expect_ids(const Gate& gate, const Ids& ids) {
  for (const Mode mode : every_mode) EXPECT_EQ(route(gate, mode).ids, ids) << name(mode);
}
/// Where an H200's kernel does otherwise.
void expect_ids(const Gate& gate, const Ids& ids, const Ids& of_an_h200) {
  for (const Mode mode : every_mode) EXPECT_EQ(route(gate, mode).ids, mode == Mode::hopper ? of_an_h200 : ids) << name(mode);
}

/// How the judge takes these outputs; golden's weights for these ids are what an implementation that chose them would return.
oracle::Outcome verdict(const Gate& gate, const Routing& actual) {
  const auto op = op_of(gate);
  Arguments inputs;
  inputs.set("input_tensor", op.input_tensor);
  inputs.set("bias", op.bias);
  inputs.set_attr("num_expert_group", gate.groups);
  inputs.set_attr("topk_group", gate.kept);
  inputs.set_attr("topk", gate.topk);
  inputs.set_attr("num_fused_shared_experts", gate.shared);
  inputs.set_attr("routed_scaling_factor", gate.factor);
  inputs.set_attr("apply_routed_scaling_factor_on_output", gate.apply);
  const Values ids(actual.ids.begin(), actual.ids.end());
  return oracle::judge(registry().at("moe_fused_gate"), inputs,
                       {{"topk_weights", tensor_of(DType::f32, actual.weights, {1, gate.topk})},
                        {"topk_ids", tensor_of(DType::i32, ids, {1, gate.topk})}},
                       {})
      .outcome;
}

bool passes(const Gate& gate, const Routing& actual) {
  return verdict(gate, actual) == oracle::Outcome::pass;
}

/// Weights that follow from a choice, in double.
Routing routing_of(const Gate& gate, const Ids& ids) {
  Routing routing{ids, {}};
  double sum = 0;
  for (const std::int64_t id : ids) {
    routing.weights.push_back(1.0 / (1.0 + std::exp(-gate.logits[static_cast<std::size_t>(id)])));
    sum += routing.weights.back();
  }
  for (double& weight : routing.weights) weight /= sum;
  return routing;
}

/// 32 experts in 4 groups of 8, all different and no order in them.
Gate scrambled() {
  Gate gate{.logits = Values(32), .bias = {}, .groups = 4, .kept = 2, .topk = 4};
  for (std::size_t e = 0; e < 32; ++e) gate.logits[e] = 0.1 * static_cast<double>(e * 7 % 32) - 1.5;
  return gate;
}

// ---- the choice

TEST(MoeFusedGate, WorkedExample) {
  Gate gate{.logits = {0, 1, -1, 2, .5, .5, 3, -2, 1, 1, 1, 1, -3, 4, 0, -1},
            .bias = {0, 0, 0, 0, .5, 0, 0, 0, 0, 0, 0, 0, 0, -.4, .3, 0},
            .groups = 4,
            .kept = 2,
            .topk = 4,
            .shared = 1,
            .factor = 2.5};
  const Values plain{0.253462, 0.387883, 0.358655, 0.4}, applied{0.633655, 0.969707, 0.896639, 1.0};
  for (const bool apply : {false, true}) {
    gate.apply = apply;
    for (const Mode mode : every_mode) {
      const Routing routing = route(gate, mode);
      EXPECT_EQ(routing.ids, (Ids{4, 6, 3, 16})) << name(mode);
      for (std::size_t k = 0; k < 4; ++k) EXPECT_NEAR(routing.weights[k], (apply ? applied : plain)[k], 1e-6) << name(mode);
    }
  }
}

TEST(MoeFusedGate, GroupsAreRankedByTheSumOfTheirTwoBest) {
  // The single best expert is in group 0, the best pair in group 1.
  expect_ids({.logits = {3, -4, -4, -4, 1, 1.5, -4, -4}, .bias = {}, .groups = 2, .kept = 1, .topk = 2}, {5, 4});
}

TEST(MoeFusedGate, TheBestCountsTwiceWhenItOccursTwice) {
  expect_ids({.logits = {2, 2, -4, -4, 2.5, 1, -4, -4}, .bias = {}, .groups = 2, .kept = 1, .topk = 1}, {0});
}

TEST(MoeFusedGate, TheTwoBestMayLieAnywhereInAGroup) {
  for (const std::size_t second : {1u, 15u, 16u, 31u}) {
    Gate gate{.logits = Values(64, -4.0), .bias = {}, .groups = 2, .kept = 1, .topk = 2};
    gate.logits[0] = 2;
    gate.logits[second] = 1.9;
    gate.logits[40] = 2.1;
    gate.logits[41] = 1.5;
    expect_ids(gate, {0, static_cast<std::int64_t>(second)});
  }
}

TEST(MoeFusedGate, OfEqualGroupsTheLowerIsKept) {
  expect_ids({.logits = {-1, -1, 0, 1, 1, 0, 0, 1}, .bias = {}, .groups = 4, .kept = 2, .topk = 2}, {3, 4});
  // Equal sums of different pairs, exact in bf16: keys 0.5 + 0.25 and 0.375 + 0.375 (through the bias).
  expect_ids({.logits = {0, 0, 0, 0}, .bias = {0, -.25, -.125, -.125}, .groups = 2, .kept = 1, .topk = 1, .type = DType::bf16}, {0});
  expect_ids({.logits = {0, 0, 0, 0}, .bias = {-.125, -.125, -.25, 0}, .groups = 2, .kept = 1, .topk = 1, .type = DType::bf16}, {0});
}

TEST(MoeFusedGate, OfEqualExpertsTheLowerIsChosenAcrossGroups) {
  expect_ids({.logits = {1, 2, 0, 0, 0, 2, 1, 0, -3, -3, -3, -3, -3, -3, -3, -3}, .bias = {}, .groups = 4, .kept = 2, .topk = 4},
             {1, 5, 0, 6});
}

TEST(MoeFusedGate, AllEqualGivesTheFirstExperts) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16})
    expect_ids({.logits = Values(256, 0.25), .bias = {}, .groups = 8, .kept = 4, .topk = 8, .type = type}, {0, 1, 2, 3, 4, 5, 6, 7});
}

TEST(MoeFusedGate, SaturatedScoresTie) {
  expect_ids({.logits = {18, 30, 100, infinity}, .bias = {}, .groups = 1, .kept = 1, .topk = 3}, {0, 1, 2});
}

TEST(MoeFusedGate, RoundingToTheTypeMakesTies) {
  // sigmoid(0.9921875) and sigmoid(1) are the same bf16 number; in fp32 the second is larger.
  Gate gate{.logits = {0.9921875, 1, -1, -1}, .bias = {}, .groups = 1, .kept = 1, .topk = 2};
  expect_ids(gate, {1, 0});
  gate.type = DType::bf16;
  expect_ids(gate, {0, 1});
}

TEST(MoeFusedGate, TheBiasIsAddedInTheType) {
  // 0.5 + 2^-10 is 0.5 in bf16.
  Gate gate{.logits = {0, 0, 0, 0}, .bias = {0, 0x1p-10, 0, 0}, .groups = 1, .kept = 1, .topk = 1};
  expect_ids(gate, {1});
  gate.type = DType::bf16;
  expect_ids(gate, {0});
}

TEST(MoeFusedGate, TheBiasSteersTheChoiceAndNotTheWeights) {
  const Gate gate{.logits = {2, 1, 0, -1}, .bias = {0, 0, 0, 1}, .groups = 1, .kept = 1, .topk = 2};
  for (const Mode mode : every_mode) {
    const Routing routing = route(gate, mode);
    EXPECT_EQ(routing.ids, (Ids{3, 0})) << name(mode);
    const double low = 1.0 / (1.0 + std::exp(1.0)), high = 1.0 / (1.0 + std::exp(-2.0));
    EXPECT_NEAR(routing.weights[0], low / (low + high), 1e-6) << name(mode);
  }
}

TEST(MoeFusedGate, AMaskOfMinusInfinityIsObeyed) {
  Gate gate = scrambled();
  gate.bias = Values(32, 0.0);
  for (std::size_t e = 0; e < 16; ++e) gate.bias[e] = -infinity;
  for (const Mode mode : every_mode)
    for (const std::int64_t id : route(gate, mode).ids) EXPECT_GE(id, 16) << name(mode);
}

TEST(MoeFusedGate, MaskedExpertsAreChosenByIndexWhereNothingElseIsLeft) {
  expect_ids({.logits = Values(8, 0.5),
              .bias = {-infinity, -infinity, 0, -infinity, -infinity, -infinity, -infinity, 0},
              .groups = 2,
              .kept = 1,
              .topk = 3},
             {2, 0, 1}, {2, 2, 2});
}

TEST(MoeFusedGate, SmallGroupsAreNotFilledUp) {
  Gate gate{.logits = Values(8, 0.5), .bias = Values(8, -infinity), .groups = 2, .kept = 2, .topk = 6};
  gate.bias[4] = 0;
  expect_ids(gate, {4, 0, 1, 2, 3, 5}, {4, 4, 4, 4, 4, 4});
}

/// Rows of calls of sgl-kernel 0.3.21 on an H200.
TEST(MoeFusedGate, WhereNothingElseIsLeftUpstreamTakesAgainWhatItTook) {
  const Gate halves{.logits = Values(8, 0.1595458984375),
                    .bias = {-0.09033203125, -0.03558349609375, -0.1285400390625, -0.0243377685546875, 0.08740234375, -infinity,
                             0.214111328125, -0.0015697479248046875},
                    .groups = 1,
                    .kept = 1,
                    .topk = 8,
                    .type = DType::f16};
  EXPECT_EQ(route(halves, Mode::hopper).ids, (Ids{6, 4, 7, 3, 1, 0, 2, 0}));
  const Gate one_group{.logits = {-0.2388523519039154, -1.0273637771606445, 0.35032156109809875, -0.6823410391807556},
                       .bias = {-infinity, -infinity, -0.06249576807022095, -0.03280513733625412},
                       .groups = 1,
                       .kept = 1,
                       .topk = 4};
  EXPECT_EQ(route(one_group, Mode::hopper).ids, (Ids{2, 3, 2, 2}));
  EXPECT_EQ(verdict(one_group, route(one_group, Mode::hopper)), oracle::Outcome::vacuous) << "the row is open";
  const Gate dropped_group{.logits = {-17.01206398010254, -17.00332260131836, 89.9896469116211, 100.00170135498047, -89.99765014648438,
                                      -17.012460708618164, 100.01091766357422, 100.00048828125},
                           .bias = {-infinity, 0.2131858915090561, -0.0384812131524086, 0.03350650891661644, 0.040862806141376495,
                                    0.11150205880403519, -0.09931544959545135, -0.02522623911499977},
                           .groups = 2,
                           .kept = 1,
                           .topk = 4};
  EXPECT_EQ(route(dropped_group, Mode::hopper).ids, (Ids{3, 2, 1, 1}));
}

TEST(MoeFusedGate, NaNCountsAsMinusInfinity) {
  expect_ids({.logits = {1, nan, 2, nan, 5, nan, nan, nan}, .bias = {}, .groups = 2, .kept = 1, .topk = 2}, {2, 0});
}

TEST(MoeFusedGate, ARowThatANaNDecidesIsOpen) {
  const Gate first_of_a_group{.logits = {nan, 1, 2, 3}, .bias = {}, .groups = 1, .kept = 1, .topk = 2};
  const Gate for_want_of_others{.logits = {1, nan, 2, nan}, .bias = {}, .groups = 1, .kept = 1, .topk = 3};
  for (const Gate& gate : {first_of_a_group, for_want_of_others}) {
    Routing routing = route(gate, Mode::golden);
    EXPECT_EQ(verdict(gate, routing), oracle::Outcome::vacuous);
    std::swap(routing.ids[0], routing.ids[1]);
    EXPECT_EQ(verdict(gate, routing), oracle::Outcome::vacuous);
    EXPECT_THROW(route(gate, Mode::hopper), Error);
  }
}

TEST(MoeFusedGate, GroupsOfOneExpertAllTie) {
  expect_ids({.logits = {0, 1, 2, 3}, .bias = {}, .groups = 4, .kept = 2, .topk = 2}, {1, 0});
}

TEST(MoeFusedGate, MoreCandidatesThanLanesAreRanked) {
  Gate gate{.logits = Values(256), .bias = {}, .groups = 8, .kept = 4, .topk = 8};
  // Group 0 falls steeply: the weakest second best lies far down, and nearly all of groups 1 to 3 above it.
  for (std::size_t e = 0; e < 256; ++e) gate.logits[e] = 0.01 * static_cast<double>(e % 32) + (e < 128 ? 0.0 : -3.0);
  for (std::size_t e = 1; e < 32; ++e) gate.logits[e] = -2.0;
  gate.logits[0] = 6.0;
  expect_ids(gate, {0, 63, 95, 127, 62, 94, 126, 61});
}

TEST(MoeFusedGate, TiesBelowASteepGroupFallToTheLowerIndex) {
  Gate gate{.logits = Values(256, -3.0), .bias = {}, .groups = 8, .kept = 4, .topk = 8};
  for (std::size_t e = 32; e < 128; ++e) gate.logits[e] = 0.5;
  gate.logits[0] = 6.0;
  expect_ids(gate, {0, 32, 33, 34, 35, 36, 37, 38});
}

TEST(MoeFusedGate, TheBestOfASteepGroupAndOfOneRunAreFound) {
  Gate gate{.logits = Values(256, -3.0), .bias = {}, .groups = 8, .kept = 4, .topk = 8};
  for (std::size_t e = 32; e < 128; ++e) gate.logits[e] = 0.5 + 0.001 * static_cast<double>(e % 7);
  for (std::size_t e = 33; e < 48; ++e) gate.logits[e] = 3.0 - 0.01 * static_cast<double>(e);
  gate.logits[0] = 6.0;
  expect_ids(gate, {0, 33, 34, 35, 36, 37, 38, 39});
}

TEST(MoeFusedGate, MoreThanALaneEachMayBeChosen) {
  Gate gate{.logits = Values(128), .bias = {}, .groups = 4, .kept = 2, .topk = 40};
  for (std::size_t e = 0; e < 128; ++e) gate.logits[e] = 0.02 * static_cast<double>(e * 37 % 64) + (e < 64 ? 1.0 : -1.0);
  Ids best(64);
  std::iota(best.begin(), best.end(), 0);
  std::sort(best.begin(), best.end(), [&](std::int64_t a, std::int64_t b) {
    return gate.logits[static_cast<std::size_t>(a)] > gate.logits[static_cast<std::size_t>(b)];
  });
  best.resize(40);
  expect_ids(gate, best);
}

TEST(MoeFusedGate, MoreExpertsThanTwoAGroupMayBeChosen) {
  Gate gate = scrambled();
  gate.kept = 1;
  gate.topk = 8;
  const Routing golden = route(gate, Mode::golden);
  expect_ids(gate, golden.ids);
  Ids sorted = golden.ids;
  std::sort(sorted.begin(), sorted.end());
  Ids whole_group(8);
  std::iota(whole_group.begin(), whole_group.end(), sorted.front());
  EXPECT_EQ(sorted, whole_group);
}

TEST(MoeFusedGate, RowsMayBeSlicesOfAWiderTensor) {
  const Gate gate = scrambled();
  auto op = op_of(gate);
  const Tensor wide(DType::f32, {1, 48}), slice = wide.slice(1, 8, 40);
  copy(op.input_tensor, slice);
  op.input_tensor = slice;
  for (const Mode mode : every_mode) {
    Exec exec;
    exec.mode = mode;
    const auto result = ops::run(op, exec);
    EXPECT_EQ(result.topk_ids.as<std::int32_t>()[0], route(gate, mode).ids[0]) << name(mode);
  }
}

// ---- weights

TEST(MoeFusedGate, WeightsOfChosenExpertsSumToOneOrToTheFactor) {
  Gate gate = scrambled();
  gate.factor = 2.5;
  for (const bool apply : {false, true}) {
    gate.apply = apply;
    for (const Mode mode : every_mode) {
      const Routing routing = route(gate, mode);
      EXPECT_NEAR(std::accumulate(routing.weights.begin(), routing.weights.end(), 0.0), apply ? 2.5 : 1.0, 1e-6) << name(mode);
    }
  }
}

TEST(MoeFusedGate, SharedExpertsFollowWithTheIdsAfterE) {
  Gate gate = scrambled();
  gate.topk = 6;
  gate.shared = 2;
  gate.factor = 2.5;
  for (const bool apply : {false, true}) {
    gate.apply = apply;
    for (const Mode mode : every_mode) {
      const Routing routing = route(gate, mode);
      EXPECT_EQ(routing.ids[4], 32) << name(mode);
      EXPECT_EQ(routing.ids[5], 33) << name(mode);
      EXPECT_NEAR(routing.weights[4], apply ? 1.0 : 0.4, 1e-6) << name(mode);
      EXPECT_NEAR(routing.weights[5], apply ? 1.0 : 0.4, 1e-6) << name(mode);
    }
  }
}

TEST(MoeFusedGate, ARowWithoutAnyScoreGivesNaN) {
  const Gate gate{.logits = Values(8, -infinity), .bias = {}, .groups = 2, .kept = 1, .topk = 2};
  for (const Mode mode : every_mode) {
    const Routing routing = route(gate, mode);
    EXPECT_EQ(routing.ids, (Ids{0, 1})) << name(mode);
    EXPECT_TRUE(std::isnan(routing.weights[0])) << name(mode);
    EXPECT_TRUE(passes(gate, routing)) << name(mode);
  }
  EXPECT_FALSE(passes(gate, {{0, 1}, {0.5, 0.5}}));
}

TEST(MoeFusedGate, WeightsOfScoresThatMayBeFlushedAreOpen) {
  // e^-95 is a denormal: kept, flushed, or 1/inf.
  const Gate gate{.logits = Values(8, -95.0), .bias = {}, .groups = 2, .kept = 1, .topk = 2};
  // Where all weights are open, only the choice is compared.
  EXPECT_EQ(verdict(gate, {{0, 1}, {0.5, 0.5}}), oracle::Outcome::vacuous);
  EXPECT_EQ(verdict(gate, {{0, 1}, {nan, nan}}), oracle::Outcome::vacuous);
  EXPECT_EQ(verdict(gate, {{1, 0}, {0.5, 0.5}}), oracle::Outcome::fail);
}

TEST(MoeFusedGate, AWeightMayBeFlushedBeforeItIsScaled) {
  // e^-86 over a sum of four is denormal; times 2.5 it would not be.
  const Gate gate{
      .logits = {9, 9, 9, 9, -86, -200, -200, -200}, .bias = {}, .groups = 1, .kept = 1, .topk = 5, .factor = 2.5, .apply = true};
  Routing flushed = route(gate, Mode::golden);
  EXPECT_GT(flushed.weights[4], 0x1p-126);
  flushed.weights[4] = 0;
  EXPECT_EQ(verdict(gate, flushed), oracle::Outcome::pass);
  flushed.weights[4] = 0x1p-123;
  EXPECT_EQ(verdict(gate, flushed), oracle::Outcome::fail);
}

// ---- the judge

TEST(MoeFusedGateJudge, ItsOwnModesPass) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    Gate gate = scrambled();
    gate.type = type;
    for (const Mode mode : every_mode) EXPECT_TRUE(passes(gate, route(gate, mode))) << name(mode);
  }
}

TEST(MoeFusedGateJudge, AWrongTieFails) {
  const Gate gate{.logits = {1, 1, 0, 0}, .bias = {}, .groups = 1, .kept = 1, .topk = 2};
  EXPECT_TRUE(passes(gate, {{0, 1}, {0.5, 0.5}}));
  EXPECT_FALSE(passes(gate, {{1, 0}, {0.5, 0.5}}));
  const Gate one{.logits = {1, 1, 0, 0}, .bias = {}, .groups = 1, .kept = 1, .topk = 1};
  EXPECT_FALSE(passes(one, {{1}, {1.0}}));
}

TEST(MoeFusedGateJudge, AWrongTieOfSaturatedScoresFails) {
  const Gate gate{.logits = {18, 30, 0, 0}, .bias = {}, .groups = 1, .kept = 1, .topk = 1};
  EXPECT_TRUE(passes(gate, {{0}, {1.0}}));
  EXPECT_FALSE(passes(gate, {{1}, {1.0}}));
}

TEST(MoeFusedGateJudge, AWrongTieOfRoundedScoresFails) {
  const Gate gate{.logits = {0.9921875, 1, -1, -1}, .bias = {}, .groups = 1, .kept = 1, .topk = 1, .type = DType::bf16};
  EXPECT_TRUE(passes(gate, {{0}, {1.0}}));
  EXPECT_FALSE(passes(gate, {{1}, {1.0}}));
}

TEST(MoeFusedGateJudge, AWrongTieOfGroupsFails) {
  const Gate gate{.logits = {1, 1, 0, 0, 1, 1, -1, -1}, .bias = {}, .groups = 2, .kept = 1, .topk = 2};
  EXPECT_TRUE(passes(gate, {{0, 1}, {0.5, 0.5}}));
  EXPECT_FALSE(passes(gate, {{4, 5}, {0.5, 0.5}}));
}

TEST(MoeFusedGateJudge, ANearTieMayFallEitherWay) {
  Gate gate = scrambled();
  gate.topk = 2;
  const Ids golden = route(gate, Mode::golden).ids;
  // The two best become neighbours in fp32.
  const auto first = static_cast<std::size_t>(golden[0]), second = static_cast<std::size_t>(golden[1]);
  gate.logits[second] = std::nextafter(static_cast<float>(gate.logits[first]), 0.0f);
  EXPECT_TRUE(passes(gate, routing_of(gate, {golden[0], golden[1]})));
  EXPECT_TRUE(passes(gate, routing_of(gate, {golden[1], golden[0]})));
  // A thousandth apart, only one order is right.
  gate.logits[second] = gate.logits[first] - 1e-3;
  EXPECT_TRUE(passes(gate, routing_of(gate, {golden[0], golden[1]})));
  EXPECT_FALSE(passes(gate, routing_of(gate, {golden[1], golden[0]})));
}

TEST(MoeFusedGateJudge, ANearTieAtTheCutMayFallEitherWay) {
  Gate gate{.logits = {2, 1, 0, std::nextafter(1.0f, 2.0f)}, .bias = {}, .groups = 1, .kept = 1, .topk = 2};
  EXPECT_TRUE(passes(gate, routing_of(gate, {0, 3})));
  EXPECT_TRUE(passes(gate, routing_of(gate, {0, 1})));
  EXPECT_FALSE(passes(gate, routing_of(gate, {0, 2})));
}

TEST(MoeFusedGateJudge, ANearTieOfGroupsMayFallEitherWay) {
  Gate gate{.logits = {1, 1, 0, 0, 1, std::nextafter(1.0f, 2.0f), 0, 0}, .bias = {}, .groups = 2, .kept = 1, .topk = 2};
  EXPECT_TRUE(passes(gate, routing_of(gate, {0, 1})));
  EXPECT_TRUE(passes(gate, routing_of(gate, {5, 4})));
  EXPECT_TRUE(passes(gate, routing_of(gate, {4, 5})));
  EXPECT_FALSE(passes(gate, routing_of(gate, {1, 0})));
  EXPECT_FALSE(passes(gate, routing_of(gate, {0, 4})));  // from two groups
}

TEST(MoeFusedGateJudge, AnExpertOfADroppedGroupFails) {
  const Gate gate{.logits = {3, -4, -4, -4, 1, 1.5, -4, -4}, .bias = {}, .groups = 2, .kept = 1, .topk = 2};
  EXPECT_TRUE(passes(gate, routing_of(gate, {5, 4})));
  EXPECT_FALSE(passes(gate, routing_of(gate, {0, 5})));
}

TEST(MoeFusedGateJudge, ChoosingOverAllGroupsFails) {
  Gate gate = scrambled();
  const Routing golden = route(gate, Mode::golden);
  Gate ungrouped = gate;
  ungrouped.kept = gate.groups;
  const Ids all = route(ungrouped, Mode::golden).ids;
  ASSERT_NE(all, golden.ids);
  EXPECT_FALSE(passes(gate, routing_of(gate, all)));
}

TEST(MoeFusedGateJudge, OrderByWeightInsteadOfByBiasedScoreFails) {
  const Gate gate{.logits = {2, 1, 0, -1}, .bias = {0, 0, 0, 1}, .groups = 1, .kept = 1, .topk = 2};
  EXPECT_TRUE(passes(gate, routing_of(gate, {3, 0})));
  EXPECT_FALSE(passes(gate, routing_of(gate, {0, 3})));
}

TEST(MoeFusedGateJudge, TheBiasAsWeightFails) {
  const Gate gate{.logits = {2, 1, 0, -1}, .bias = {0, 0, 0, 1}, .groups = 1, .kept = 1, .topk = 2};
  const double low = 1.0 + 1.0 / (1.0 + std::exp(1.0)), high = 1.0 / (1.0 + std::exp(-2.0));
  EXPECT_FALSE(passes(gate, {{3, 0}, {low / (low + high), high / (low + high)}}));
}

TEST(MoeFusedGateJudge, UnnormalisedWeightsFail) {
  const Gate gate{.logits = {2, 1, 0, -1}, .bias = {}, .groups = 1, .kept = 1, .topk = 2};
  Routing routing = routing_of(gate, {0, 1});
  EXPECT_TRUE(passes(gate, routing));
  for (double& weight : routing.weights) weight *= 1.0 / (1.0 + std::exp(-2.0)) + 1.0 / (1.0 + std::exp(-1.0));
  EXPECT_FALSE(passes(gate, routing));
}

TEST(MoeFusedGateJudge, WeightsAFewUnitsOffFail) {
  const Gate gate = scrambled();
  Routing routing = route(gate, Mode::golden);
  routing.weights[2] *= 1.0 + 4e-6;
  EXPECT_FALSE(passes(gate, routing));
}

TEST(MoeFusedGateJudge, AMissingFactorFails) {
  Gate gate = scrambled();
  gate.factor = 2.5;
  const Routing without = route(gate, Mode::golden);
  gate.apply = true;
  EXPECT_FALSE(passes(gate, without));
}

TEST(MoeFusedGateJudge, AWrongSharedExpertFails) {
  Gate gate = scrambled();
  gate.topk = 5;
  gate.shared = 1;
  gate.factor = 2.5;
  Routing routing = route(gate, Mode::golden);
  EXPECT_TRUE(passes(gate, routing));
  routing.ids[4] = 33;
  EXPECT_FALSE(passes(gate, routing));
  routing.ids[4] = 32;
  routing.weights[4] = 1.0;
  EXPECT_FALSE(passes(gate, routing));
}

TEST(MoeFusedGateJudge, DuplicatesAndForeignIdsFail) {
  const Gate gate{.logits = {1, 1, 0, 0}, .bias = {}, .groups = 1, .kept = 1, .topk = 2};
  for (const Ids& ids : {Ids{0, 0}, Ids{0, 4}, Ids{-1, 0}, Ids{0, 1000000}}) EXPECT_FALSE(passes(gate, {ids, {0.5, 0.5}}));
}

TEST(MoeFusedGateJudge, ARightChoiceWithTheWeightsOfAnotherFails) {
  Gate gate{.logits = {2, 1, 0, std::nextafter(1.0f, 2.0f)}, .bias = {}, .groups = 1, .kept = 1, .topk = 2};
  Routing routing = routing_of(gate, {0, 1});
  std::swap(routing.weights[0], routing.weights[1]);
  EXPECT_FALSE(passes(gate, routing));
}

// ---- what is refused

TEST(MoeFusedGate, RefusesWhatTheKernelCannotRoute) {
  const auto refused = [](Gate gate) {
    const auto error = helpers::error_in([&] { route(gate, Mode::fast); });
    return error ? error->argument() : "accepted";
  };
  const Values eight(8, 0.0);
  EXPECT_EQ(refused({.logits = eight, .bias = {}, .groups = 2, .kept = 1, .topk = 2}), "accepted");
  EXPECT_EQ(refused({.logits = Values(12, 0.0), .bias = {}, .groups = 2, .kept = 1, .topk = 2}), "input_tensor");
  EXPECT_EQ(refused({.logits = eight, .bias = {}, .groups = 3, .kept = 1, .topk = 2}), "num_expert_group");
  EXPECT_EQ(refused({.logits = Values(64, 0.0), .bias = {}, .groups = 1, .kept = 1, .topk = 2}), "num_expert_group");
  EXPECT_EQ(refused({.logits = Values(64, 0.0), .bias = {}, .groups = 64, .kept = 1, .topk = 1}), "num_expert_group");
  EXPECT_EQ(refused({.logits = eight, .bias = {}, .groups = 2, .kept = 3, .topk = 2}), "topk_group");
  EXPECT_EQ(refused({.logits = eight, .bias = {}, .groups = 2, .kept = 1, .topk = 5}), "topk");
  EXPECT_EQ(refused({.logits = eight, .bias = {}, .groups = 2, .kept = 1, .topk = 5, .shared = 1, .factor = 1}), "accepted");
  EXPECT_EQ(refused({.logits = eight, .bias = {}, .groups = 2, .kept = 1, .topk = 1, .shared = 1, .factor = 1}),
            "num_fused_shared_experts");
  EXPECT_EQ(refused({.logits = eight, .bias = {}, .groups = 2, .kept = 1, .topk = 2, .shared = 1}), "routed_scaling_factor");
  EXPECT_EQ(refused({.logits = eight, .bias = {}, .groups = 2, .kept = 1, .topk = 2, .apply = true}), "routed_scaling_factor");
}

TEST(MoeFusedGate, RefusesABiasOfAnotherType) {
  auto op = op_of(scrambled());
  op.bias = Tensor(DType::bf16, {32});
  EXPECT_THROW(ops::run(op, Exec{}), Error);
}

TEST(MoeFusedGate, NoTokensNothingHappens) {
  auto op = op_of(scrambled());
  op.input_tensor = Tensor(DType::f32, {0, 32});
  for (const Mode mode : every_mode) {
    Exec exec;
    exec.mode = mode;
    EXPECT_EQ(ops::run(op, exec).topk_ids.shape(), (Dims{0, 4}));
  }
}

}  // namespace
}  // namespace dodona
