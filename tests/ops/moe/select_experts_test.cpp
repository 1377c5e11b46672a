// The front end of the routers, against a straight formula.
#include "ops/moe/routing/select_experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "dodona/error.h"
#include "tests/errors.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr std::int64_t tokens = 5;

ops::SelectExperts grouped(std::int64_t experts, std::int64_t groups, std::int64_t kept, std::int64_t top_k) {
  ops::SelectExperts op;
  op.router_logits = normal(DType::f32, {tokens, experts}, "logits");
  op.top_k = top_k;
  op.use_grouped_topk = true;
  op.num_expert_group = groups;
  op.topk_group = kept;
  return op;
}

/// Weights by expert: what a token gives each, in double and without any of the library's routers.
Values straight(const ops::SelectExperts& op, std::int64_t t) {
  const std::int64_t experts = op.router_logits.size(1), groups = std::max<std::int64_t>(op.num_expert_group, 1);
  const std::int64_t shared = op.use_grouped_topk ? op.num_fused_shared_experts : 0;
  const bool softmax = op.use_grouped_topk ? !op.correction_bias.defined() : op.scoring_func == "softmax";
  Values score, key;
  double sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const double power = std::exp(quant::get(op.router_logits, t * experts + e));
    score.push_back(softmax ? power : power / (1 + power));
    sum += power;
  }
  for (std::int64_t e = 0; e < experts; ++e) {
    double& s = score[static_cast<std::size_t>(e)];
    if (softmax) s /= sum;
    key.push_back(s + (op.correction_bias.defined() && !softmax ? quant::get(op.correction_bias, e) : 0));
  }
  if (op.use_grouped_topk && groups > 1) {
    Values of_group;
    const std::int64_t members = experts / groups;
    for (std::int64_t g = 0; g < groups; ++g) {
      Values keys(key.begin() + g * members, key.begin() + (g + 1) * members);
      std::sort(keys.rbegin(), keys.rend());
      of_group.push_back(softmax ? keys[0] : keys[0] + keys[1]);
    }
    Values sorted = of_group;
    std::sort(sorted.rbegin(), sorted.rend());
    for (std::int64_t e = 0; e < experts; ++e)
      if (of_group[static_cast<std::size_t>(e / members)] < sorted[static_cast<std::size_t>(op.topk_group - 1)])
        key[static_cast<std::size_t>(e)] = -1e9;
  }
  std::vector<std::size_t> order(key.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key[a] > key[b]; });
  order.resize(static_cast<std::size_t>(op.top_k - shared));
  double chosen = 0;
  for (const std::size_t e : order) chosen += score[e];
  const bool divides = op.renormalize || ops::router_of(op) == "moe_fused_gate";
  const double factor = divides && op.apply_routed_scaling_factor_on_output ? op.routed_scaling_factor : 1;
  Values weights(static_cast<std::size_t>(experts + shared), 0.0);
  for (const std::size_t e : order) weights[e] = score[e] / (divides ? chosen : 1) * factor;
  for (std::int64_t e = 0; e < shared; ++e)
    weights[static_cast<std::size_t>(experts + e)] = chosen / op.routed_scaling_factor / chosen * factor;
  return weights;
}

void expect_straight(const ops::SelectExperts& op, std::string_view router) {
  EXPECT_EQ(ops::router_of(op), router);
  for (const Mode mode : {Mode::golden, Mode::fast, Mode::hopper}) {
    const bool native = router == "grouped_topk" || router == "biased_grouped_topk" || router == "fused_topk_torch_native";
    if (mode == Mode::hopper && native) {
      EXPECT_NE(error_of(op, mode).find("comes to " + std::string(router)), std::string::npos);
      continue;
    }
    const auto run = ops::run(op, in_mode(mode));
    for (std::int64_t t = 0; t < tokens; ++t) {
      Values weights = straight(op, t), found(weights.size(), 0.0);
      for (std::int64_t k = 0; k < op.top_k; ++k)
        found[static_cast<std::size_t>(quant::get(run.topk_ids, t * op.top_k + k))] = quant::get(run.topk_weights, t * op.top_k + k);
      for (std::size_t e = 0; e < weights.size(); ++e)
        EXPECT_NEAR(found[e], weights[e], 1e-6) << router << " token " << t << " expert " << e;
    }
  }
}

Tensor bias(std::int64_t experts) {
  return normal(DType::f32, {experts}, "bias");
}

TEST(SelectExperts, GroupedChoicesComeToTheRouterForTheirSizes) {
  ops::SelectExperts op = grouped(256, 8, 4, 8);
  expect_straight(op, "grouped_topk");
  op.correction_bias = bias(256);
  op.renormalize = false;
  expect_straight(op, "moe_fused_gate");
  op = grouped(96, 4, 2, 6);
  op.correction_bias = bias(96);
  expect_straight(op, "biased_grouped_topk");
  op = grouped(256, 4, 2, 6);  // 64 experts a group are too many for the gate
  op.correction_bias = bias(256);
  expect_straight(op, "biased_grouped_topk");
  op = grouped(384, 1, 1, 8);
  op.correction_bias = bias(384);
  op.routed_scaling_factor = 2.872;
  op.apply_routed_scaling_factor_on_output = true;
  expect_straight(op, "kimi_k2_moe_fused_gate");
}

TEST(SelectExperts, UngroupedChoicesComeToTheRouterOfTheirScores) {
  ops::SelectExperts op;
  op.router_logits = normal(DType::f32, {tokens, 64}, "logits");
  op.top_k = 6;
  op.correction_bias = bias(64);
  expect_straight(op, "topk_softmax");  // as upstream, without the bias
  op.scoring_func = "sigmoid";
  expect_straight(op, "topk_sigmoid");
  op.torch_native = true;
  expect_straight(op, "fused_topk_torch_native");
}

TEST(SelectExperts, AFusedSharedExpertWeighsTheOthersOverTheFactorAndWithTheFactorOne) {
  ops::SelectExperts op = grouped(256, 8, 4, 9);
  op.correction_bias = bias(256);
  op.num_fused_shared_experts = 1;
  op.routed_scaling_factor = 2.5;
  expect_straight(op, "moe_fused_gate");
  op.apply_routed_scaling_factor_on_output = true;
  expect_straight(op, "moe_fused_gate");
  const auto run = ops::run(op, in_mode(Mode::golden));
  EXPECT_EQ(quant::get(run.topk_ids, 8), 256);
  EXPECT_NEAR(quant::get(run.topk_weights, 8), 1.0, 1e-7);
  op.correction_bias = Tensor();
  expect_straight(op, "grouped_topk");
}

TEST(SelectExperts, TheRoutersOfTorchRoundAsIsAsked) {
  for (const bool biased : {false, true}) {
    ops::SelectExperts op = grouped(96, 4, 2, 6);
    op.router_logits = normal(DType::bf16, {tokens, 96}, "logits");
    if (biased) op.correction_bias = bias(96);
    for (const Mode mode : {Mode::golden, Mode::fast}) {
      op.rounding = "compiled";
      const Values compiled = values_of(ops::run(op, in_mode(mode)).topk_weights);
      op.rounding = "eager";
      const Values eager = values_of(ops::run(op, in_mode(mode)).topk_weights);
      std::size_t of_the_type = 0;
      for (std::size_t i = 0; i < eager.size(); ++i) {
        EXPECT_EQ(eager[i], quant::round_to(DType::bf16, eager[i]));
        of_the_type += compiled[i] == quant::round_to(DType::bf16, compiled[i]) ? 1 : 0;
      }
      EXPECT_LT(of_the_type, compiled.size() / 2);
    }
  }
}

TEST(SelectExperts, IdsBecomePhysicalExpertsAndRowsOfPaddingNobody) {
  ops::SelectExperts op = grouped(64, 8, 4, 5);
  op.correction_bias = bias(64);
  op.num_fused_shared_experts = 1;
  op.routed_scaling_factor = 2.5;
  const auto plain = ops::run(op, in_mode(Mode::golden));
  op.logical_to_physical_map = Tensor(DType::i64, {65});
  for (std::int64_t e = 0; e < 65; ++e) op.logical_to_physical_map.as<std::int64_t>()[e] = 100 + (e * 7) % 65;
  op.num_token_non_padded = tensor_of(DType::i32, {1}, {3});
  for (const Mode mode : {Mode::golden, Mode::fast, Mode::hopper}) {
    const auto run = ops::run(op, in_mode(mode));
    for (std::int64_t i = 0; i < tokens * 5; ++i) {
      const auto logical = static_cast<std::int64_t>(quant::get(plain.topk_ids, i));
      EXPECT_EQ(quant::get(run.topk_ids, i), i < 15 ? static_cast<double>(100 + (logical * 7) % 65) : -1);
      EXPECT_NEAR(quant::get(run.topk_weights, i), quant::get(plain.topk_weights, i), 1e-6);
    }
  }
  // More tokens than there are leave all; none masks all.
  op.num_token_non_padded = tensor_of(DType::i32, {1}, {9});
  EXPECT_GE(quant::get(ops::run(op, in_mode(Mode::fast)).topk_ids, 24), 100);
  op.num_token_non_padded = tensor_of(DType::i32, {1}, {0});
  EXPECT_EQ(quant::get(ops::run(op, in_mode(Mode::fast)).topk_ids, 0), -1);
}

TEST(SelectExperts, WhatKimisKernelGivesIsNeitherMappedNorMasked) {
  ops::SelectExperts op = grouped(384, 1, 1, 8);
  op.correction_bias = bias(384);
  const Values plain = values_of(ops::run(op, in_mode(Mode::golden)).topk_ids);
  op.num_token_non_padded = tensor_of(DType::i32, {1}, {1});
  op.logical_to_physical_map = Tensor(DType::i64, {384});
  for (std::int64_t e = 0; e < 384; ++e) op.logical_to_physical_map.as<std::int64_t>()[e] = 383 - e;
  EXPECT_EQ(values_of(ops::run(op, in_mode(Mode::golden)).topk_ids), plain);
}

TEST(SelectExperts, WhatUpstreamRefusesIsRefusedByName) {
  const auto refused = [](const ops::SelectExperts& op, const std::string& text) {
    const std::string error = error_of(op, Mode::fast);
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  ops::SelectExperts op = grouped(64, 0, 1, 4);
  refused(op, "select_experts: num_expert_group is 0");
  op = grouped(64, 8, 0, 4);
  refused(op, "select_experts: topk_group is 0");
  op = grouped(64, 8, 2, 17);
  refused(op, "select_experts: router_logits come to grouped_topk, which refuses them: grouped_topk: topk is 17");
  op = grouped(64, 8, 4, 4);
  op.logical_to_physical_map = tensor_of(DType::i64, {2}, {0, 1});
  refused(op, "logical_to_physical_map has shape [2], expected [E+num_fused_shared_experts]");
  op.logical_to_physical_map = filled(DType::i64, {64}, 3.0);
  refused(op, "logical_to_physical_map holds 3 at element 1, expected a physical expert that no other has");
  op = {};
  op.router_logits = normal(DType::f32, {tokens, 64}, "logits");
  op.top_k = 6;
  op.apply_routed_scaling_factor_on_output = true;
  refused(op, "apply_routed_scaling_factor_on_output is true");
  op.apply_routed_scaling_factor_on_output = false;
  op.torch_native = true;
  op.num_token_non_padded = tensor_of(DType::i32, {1}, {3});
  refused(op, "num_token_non_padded is given, expected none with torch_native");
}

}  // namespace
}  // namespace dodona
