// Rules of the routers that frameworks write in torch.
#include <gtest/gtest.h>

#include <cmath>

#include "dodona/error.h"
#include "ops/moe/routing/biased_grouped_topk.h"
#include "ops/moe/routing/fused_topk_torch_native.h"
#include "ops/moe/routing/grouped_topk.h"
#include "ops/moe/routing/moe_fused_gate.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr Mode modes[] = {Mode::golden, Mode::fast};

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

ops::BiasedGroupedTopk biased(const Values& logits, std::int64_t groups, std::int64_t kept, std::int64_t topk) {
  const auto experts = static_cast<std::int64_t>(logits.size());
  ops::BiasedGroupedTopk op;
  op.gating_output = tensor_of(DType::f32, {1, experts}, logits);
  op.correction_bias = filled(DType::f32, {experts}, 0.0);
  op.topk = topk;
  op.num_expert_group = groups;
  op.topk_group = kept;
  op.renormalize = true;
  return op;
}

TEST(NativeRouters, GroupsGoByTheirBestTwoWithASigmoidAndByTheirBestWithASoftmax) {
  const Values logits{3, -4, -4, -4, 1, 1.5, -4, -4};
  for (const Mode mode : modes) {
    EXPECT_EQ(values_of(ops::run(biased(logits, 2, 1, 2), in_mode(mode)).topk_ids), (Values{5, 4}));
    ops::GroupedTopk op;
    op.gating_output = tensor_of(DType::f32, {1, 8}, logits);
    op.topk = 2;
    op.num_expert_group = 2;
    op.topk_group = 1;
    EXPECT_EQ(values_of(ops::run(op, in_mode(mode)).topk_ids), (Values{0, 1}));
  }
}

TEST(NativeRouters, TheSharedExpertWeighsTheSumOverTheFactorAndStaysOutOfTheSum) {
  auto op = biased({2, 1, 0, -1}, 1, 1, 3);
  op.num_fused_shared_experts = 1;
  op.routed_scaling_factor = 2.5;
  const double sum = sigmoid(2) + sigmoid(1);
  for (const bool apply : {false, true}) {
    op.apply_routed_scaling_factor_on_output = apply;
    for (const Mode mode : modes) {
      const auto run = ops::run(op, in_mode(mode));
      EXPECT_EQ(values_of(run.topk_ids), (Values{0, 1, 4}));
      const double factor = apply ? 2.5 : 1;
      const Values weights{factor * sigmoid(2) / sum, factor * sigmoid(1) / sum, factor / 2.5};
      for (std::size_t k = 0; k < 3; ++k) EXPECT_NEAR(quant::get(run.topk_weights, static_cast<std::int64_t>(k)), weights[k], 1e-6);
    }
  }
}

TEST(NativeRouters, ScoresOf16BitLogitsAreRoundedToTheirTypeAndSoAreWeights) {
  ops::FusedTopkTorchNative op;
  op.gating_output = tensor_of(DType::bf16, {1, 4}, {1, 0, -1, -2});
  op.correction_bias = filled(DType::f32, {4}, 0.0);
  op.scoring_func = "sigmoid";
  op.topk = 2;
  for (const Mode mode : modes) {
    const auto run = ops::run(op, in_mode(mode));
    EXPECT_EQ(quant::get(run.topk_weights, 0), quant::round_to(DType::bf16, sigmoid(1)));
    EXPECT_EQ(quant::get(run.topk_weights, 1), 0.5);
  }
}

/// Rows of one token: the chosen experts' scores, rounded or not, make weights over their sum, rounded or not.
struct Rounding {
  bool softmax, shared;
  const char* name;
  bool scores, sum, weights;  ///< rounded to bf16
};

double rounded_if(bool rounds, double x) {
  return rounds ? quant::round_to(DType::bf16, x) : x;
}

Values weights_of(const Rounding& r, const Values& logits, Mode mode) {
  const auto run = [&](auto op) {
    op.gating_output = tensor_of(DType::bf16, {1, static_cast<std::int64_t>(logits.size())}, logits);
    op.topk = r.shared ? 4 : 3;
    op.num_expert_group = op.topk_group = 1;
    op.num_fused_shared_experts = r.shared ? 1 : 0;
    op.renormalize = op.apply_routed_scaling_factor_on_output = true;
    op.routed_scaling_factor = 2.5;
    op.rounding = r.name;
    return values_of(ops::run(op, in_mode(mode)).topk_weights);
  };
  if (r.softmax) return run(ops::GroupedTopk{});
  ops::BiasedGroupedTopk op;
  op.correction_bias = filled(DType::f32, {static_cast<std::int64_t>(logits.size())}, 0.0);
  return run(op);
}

TEST(NativeRouters, CompiledOnesRoundWhatGoesFromKernelToKernelAndEagerOnesEveryStep) {
  const Values logits{1.0390625, 0.69140625, -0.30078125, -2};
  const Rounding all[] = {{true, false, "compiled", true, false, false},   {true, true, "compiled", true, true, false},
                          {true, false, "eager", true, true, true},        {true, true, "eager", true, true, true},
                          {false, false, "compiled", false, false, false}, {false, true, "compiled", false, true, false},
                          {false, false, "eager", true, true, true},       {false, true, "eager", true, true, true}};
  constexpr double factor = 2.5;
  double exponentials = 0;
  for (const double x : logits) exponentials += std::exp(x);
  for (const Rounding& r : all) {
    Values scores;
    for (std::size_t e = 0; e < 3; ++e)
      scores.push_back(rounded_if(r.scores, r.softmax ? std::exp(logits[e]) / exponentials : sigmoid(logits[e])));
    const double sum = rounded_if(r.sum, scores[0] + scores[1] + scores[2]);
    if (r.shared) scores.push_back(rounded_if(r.weights, sum / factor));
    for (const Mode mode : modes) {
      const Values weights = weights_of(r, logits, mode);
      ASSERT_EQ(weights.size(), scores.size());
      for (std::size_t k = 0; k < scores.size(); ++k) {
        const double wanted = rounded_if(r.weights, rounded_if(r.weights, scores[k] / sum) * factor);
        EXPECT_NEAR(weights[k], wanted, 4e-7) << (r.softmax ? "softmax " : "sigmoid ") << r.name << (r.shared ? " shared" : "") << " " << k;
      }
    }
  }
}

TEST(NativeRouters, CompiledOnesOfASigmoidTellScoresApartThatTheTypeDoesNot) {
  // Both are 0.99609375 in bf16, and a tie that the lower index wins.
  ops::BiasedGroupedTopk op = biased({5.53125, 5.5625}, 1, 1, 1);
  op.gating_output = tensor_of(DType::bf16, {1, 2}, {5.53125, 5.5625});
  for (const Mode mode : modes) {
    op.rounding = "compiled";
    EXPECT_EQ(values_of(ops::run(op, in_mode(mode)).topk_ids), Values{1});
    op.rounding = "eager";
    EXPECT_EQ(values_of(ops::run(op, in_mode(mode)).topk_ids), Values{0});
  }
}

TEST(NativeRouters, AnEagerProductIsRoundedToFp32BeforeItsType) {
  // 0.5078125 * 2.3 is a little less than halfway between two bf16 numbers, which it is in fp32.
  const NamedOp op{"grouped_topk"};
  Arguments inputs = op.case_of(
      "T=1 E=4 --dtype gating_output=bf16 --attr topk=3 --attr renormalize=true --attr num_expert_group=1 --attr topk_group=1 --attr "
      "apply_routed_scaling_factor_on_output=true --attr routed_scaling_factor=2.3 --attr rounding=eager");
  inputs.set("gating_output", tensor_of(DType::bf16, {1, 4}, {1.0390625, 0.69140625, -0.30078125, -2}));
  auto outputs = op.outputs(inputs, in_mode(Mode::golden));
  for (const auto& [weight, failing] : {std::pair{1.1640625, 0}, {1.171875, 0}, {1.1796875, 1}}) {
    for (auto& [name, tensor] : outputs)
      if (name == "topk_weights") quant::set(tensor, 0, weight);
    EXPECT_EQ(op.failing(inputs, outputs), failing) << weight;
  }
}

/// Failing elements of a row of a softmax router over two groups of three experts, one of which is kept.
std::int64_t failing_row(const Values& logits, const Values& ids, const Values& weights) {
  const auto columns = static_cast<std::int64_t>(ids.size());
  Arguments inputs;
  inputs.set("gating_output", tensor_of(DType::f32, {1, 6}, logits));
  inputs.set_attr("topk", columns);
  inputs.set_attr("renormalize", false);
  inputs.set_attr("num_expert_group", std::int64_t{2});
  inputs.set_attr("topk_group", std::int64_t{1});
  return NamedOp{"grouped_topk"}.failing(
      inputs, {{"topk_weights", tensor_of(DType::f32, {1, columns}, weights)}, {"topk_ids", tensor_of(DType::i32, {1, columns}, ids)}});
}

TEST(NativeRouters, ExpertsOfDroppedGroupsFillUpARowOfASoftmaxAndWeighNothing) {
  // Three of the kept group's and the dropped group's experts are 0: e^-200 is none in fp32. Expert 3 scores e^-2 of the most.
  const Values logits{2, -200, -200, 0, -200, -200};
  const double sum = 1 + std::exp(-2.0), best = 1 / sum, dropped = std::exp(-2.0) / sum;
  EXPECT_EQ(failing_row(logits, {0, 1}, {best, 0}), 0);
  EXPECT_EQ(failing_row(logits, {0, 4}, {best, 0}), 0);
  EXPECT_EQ(failing_row(logits, {3, 0}, {0, best}), 0);
  EXPECT_GT(failing_row(logits, {0, 3}, {best, dropped}), 0) << "a masked expert keeps its score";
  EXPECT_GT(failing_row(logits, {4, 5}, {0, 0}), 0) << "the kept group's best is left out";
  EXPECT_GT(failing_row(logits, {0, 0}, {best, 0}), 0) << "an expert twice";
  EXPECT_GT(failing_row(logits, {0, 6}, {best, 0}), 0) << "no expert";
}

TEST(NativeRouters, ExpertsOfDroppedGroupsAreNoChoiceWhileKeptOnesScoreMoreThanNothing) {
  const Values logits{2, -20, -200, 0, -200, -200};
  const double sum = 1 + std::exp(-22.0) + std::exp(-2.0);
  EXPECT_EQ(failing_row(logits, {0, 1}, {1 / sum, std::exp(-22.0) / sum}), 0);
  EXPECT_GT(failing_row(logits, {0, 4}, {1 / sum, 0}), 0);
  EXPECT_GT(failing_row(logits, {0, 3}, {1 / sum, 0}), 0);
}

TEST(NativeRouters, OfGroupsThatTieTheOneWhoseExpertWeighsNothingWasDropped) {
  const Values logits{0, -200, -200, 0, -200, -200};
  EXPECT_EQ(failing_row(logits, {0, 3}, {0.5, 0}), 0);
  EXPECT_EQ(failing_row(logits, {0, 3}, {0, 0.5}), 0);
  EXPECT_GT(failing_row(logits, {0, 3}, {0.5, 0.5}), 0) << "one group is kept";
  EXPECT_GT(failing_row(logits, {0, 3}, {0, 0}), 0) << "one group is kept";
}

TEST(NativeRouters, TheGateOfDeepSeekV3IsTheFusedOne) {
  const Tensor logits = normal(DType::f32, {9, 256}, "logits"), bias = normal(DType::f32, {256}, "bias");
  ops::BiasedGroupedTopk native;
  native.gating_output = logits;
  native.correction_bias = bias;
  native.topk = 9;
  native.num_expert_group = 8;
  native.topk_group = 4;
  native.num_fused_shared_experts = 1;
  native.routed_scaling_factor = 2.5;
  native.renormalize = true;
  const ops::MoeFusedGate fused{.input_tensor = logits,
                                .bias = bias,
                                .topk_weights = {},
                                .topk_ids = {},
                                .num_expert_group = 8,
                                .topk_group = 4,
                                .topk = 9,
                                .num_fused_shared_experts = 1,
                                .routed_scaling_factor = 2.5};
  const auto a = ops::run(native, in_mode(Mode::golden));
  const auto b = ops::run(fused, in_mode(Mode::golden));
  EXPECT_EQ(values_of(a.topk_ids), values_of(b.topk_ids));
  for (std::int64_t i = 0; i < 81; ++i) EXPECT_NEAR(quant::get(a.topk_weights, i), quant::get(b.topk_weights, i), 1e-6);
}

TEST(NativeRouters, AnyOrderOfColumnsIsTakenWithItsWeightsAndNoOther) {
  const NamedOp op{"biased_grouped_topk"};
  const Arguments inputs = op.case_of("T=3 E=64 --attr topk=4 --attr renormalize=true --attr num_expert_group=4 --attr topk_group=2");
  auto outputs = op.outputs(inputs, in_mode(Mode::golden));
  for (auto& [name, tensor] : outputs)
    if (name == "topk_ids") std::swap(tensor.as<std::int32_t>()[0], tensor.as<std::int32_t>()[3]);
  EXPECT_GT(op.failing(inputs, outputs), 0);
  for (auto& [name, tensor] : outputs)
    if (name == "topk_weights") std::swap(tensor.as<float>()[0], tensor.as<float>()[3]);
  EXPECT_EQ(op.failing(inputs, outputs), 0);
}

TEST(NativeRouters, SigmoidsOfATanhMayMissByItsElevenBitsAndNoMore) {
  const NamedOp named{"biased_grouped_topk"};
  // sigmoid(-6) is 0.0025, and half of what the tanh may miss there 2.4e-4.
  const double low = sigmoid(-6), high = sigmoid(2);
  const auto failing = [&](const char* kind, double missed) {
    Arguments a = named.case_of("T=1 E=2 --attr topk=2 --attr renormalize=true --attr num_expert_group=1 --attr topk_group=1");
    a.set("gating_output", tensor_of(DType::f32, {1, 2}, {2, -6})), a.set("correction_bias", filled(DType::f32, {2}, 0));
    a.set_attr("sigmoid", std::string(kind));
    auto outputs = named.outputs(a, in_mode(Mode::golden));
    const double other = low + missed;
    for (auto& [name, tensor] : outputs)
      if (name == "topk_weights") quant::set(tensor, 0, high / (high + other)), quant::set(tensor, 1, other / (high + other));
    return named.failing(a, outputs);
  };
  EXPECT_EQ(failing("exp", 0), 0);
  EXPECT_GT(failing("exp", 1.5e-4), 0);
  EXPECT_EQ(failing("tanh", 1.5e-4), 0);
  EXPECT_EQ(failing("tanh", -1.5e-4), 0);
  EXPECT_GT(failing("tanh", 6e-4), 0);
}

TEST(NativeRouters, SizesThatDoNotFitAreRefusedByName) {
  const std::pair<ops::BiasedGroupedTopk, const char*> bad[] = {{biased(Values(9, 0), 2, 1, 1), "num_expert_group"},
                                                                {biased(Values(8, 0), 2, 3, 1), "topk_group"},
                                                                {biased(Values(8, 0), 2, 1, 5), "topk"}};
  for (const auto& [op, text] : bad) {
    const Error error = error_from([&op = op] { ops::run(op, in_mode(Mode::fast)); });
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

/// FlashInfer's kernel for one group of more than 128 experts compares with candidates that it never wrote.
TEST(NativeRouters, ExpertZeroStandsForNegativeKeysWhereCandidatesAreNeverWritten) {
  const NamedOp op{"biased_grouped_topk"};
  for (const auto& [topk, outcome] : {std::pair{"2", oracle::Outcome::known_defect}, {"8", oracle::Outcome::fail}}) {
    Arguments a = op.case_of("T=1 E=130 --attr topk=" + std::string(topk) +
                             " --attr renormalize=true --attr num_expert_group=1 --attr topk_group=1 --attr routed_scaling_factor=1 --attr "
                             "apply_routed_scaling_factor_on_output=true --attr sigmoid=tanh");
    a.set("gating_output", filled(DType::f32, {1, 130}, 0)), a.set("correction_bias", filled(DType::f32, {130}, -2));
    quant::set(*a.find("correction_bias"), 7, 1), quant::set(*a.find("correction_bias"), 9, -1);
    oracle::NamedTensors outputs = op.outputs(a, in_mode(Mode::golden));
    const Tensor ids = outputs[1].second;
    EXPECT_EQ(quant::get(ids, 0), 7);
    EXPECT_EQ(quant::get(ids, 1), 9);
    quant::set(ids, 1, 0);
    EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, outcome) << topk;
    quant::set(ids, 0, 0);
    EXPECT_EQ(oracle::judge(op.op(), a, outputs, {}).outcome, oracle::Outcome::fail) << "expert 7 has a key above 0";
  }
}

}  // namespace
}  // namespace dodona
