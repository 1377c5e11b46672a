// Rules of the routers that frameworks write in torch.
#include <gtest/gtest.h>

#include <cmath>

#include "dodona/error.h"
#include "helpers.h"
#include "ops/moe/biased_grouped_topk.h"
#include "ops/moe/fused_topk_torch_native.h"
#include "ops/moe/grouped_topk.h"
#include "ops/moe/moe_fused_gate.h"

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

TEST(NativeRouters, SizesThatDoNotFitAreRefusedByName) {
  const std::pair<ops::BiasedGroupedTopk, const char*> bad[] = {{biased(Values(9, 0), 2, 1, 1), "num_expert_group"},
                                                                {biased(Values(8, 0), 2, 3, 1), "topk_group"},
                                                                {biased(Values(8, 0), 2, 1, 5), "topk"}};
  for (const auto& [op, text] : bad) {
    try {
      ops::run(op, in_mode(Mode::fast));
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace dodona
