// Routers of torch: fast mode evaluates few scores, and chooses as golden mode does all the same.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "ops/moe/routing/biased_grouped_topk.h"
#include "ops/moe/routing/fused_topk_torch_native.h"
#include "ops/moe/routing/grouped_topk.h"
#include "tests/ops/helpers.h"

namespace dodona {
namespace {

using namespace helpers;

constexpr std::int64_t tokens = 40;

/// Rows of numbers, of few different ones, of large ones, and with what is no number.
Tensor logits(DType type, std::int64_t experts) {
  const Tensor x = normal(DType::f32, {tokens, experts}, "logits"), made(type, {tokens, experts});
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    const std::int64_t t = i / experts, e = i % experts;
    double value = quant::get(x, i);
    if (t % 4 == 1) value = std::round(value);
    if (t % 4 == 2) value *= 20;
    if (t % 4 == 3 && e % 7 == t % 7) value = (e % 2 == 0 ? 1 : -1) * std::numeric_limits<double>::infinity();
    if (t == 7 && e == 3) value = std::nan("");
    if (t == 11) value = -std::numeric_limits<double>::infinity();
    if (t == 12) value = 0.25 * static_cast<double>(e % 9) - 16;
    quant::set(made, i, value);
  }
  return made;
}

template <class Op>
void expect_goldens_choice(const Op& op) {
  const auto golden = ops::run(op, in_mode(Mode::golden)), fast = ops::run(op, in_mode(Mode::fast));
  for (std::int64_t i = 0; i < golden.topk_ids.elements(); ++i) {
    EXPECT_EQ(quant::get(fast.topk_ids, i), quant::get(golden.topk_ids, i)) << "element " << i;
    const double wanted = quant::get(golden.topk_weights, i), weight = quant::get(fast.topk_weights, i);
    if (std::isfinite(wanted)) EXPECT_NEAR(weight, wanted, 0.01 * std::fabs(wanted) + 1e-30) << "element " << i;
  }
}

TEST(NativeRouters, FastModeChoosesAsGoldenModeDoes) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16})
    for (const auto& [experts, groups, kept] :
         {std::array<std::int64_t, 3>{256, 8, 4}, {96, 4, 1}, {48, 1, 1}, {64, 64, 9}, {60, 20, 20}}) {
      ops::GroupedTopk softmax{.gating_output = logits(type, experts), .topk = 6, .num_expert_group = groups, .topk_group = kept};
      softmax.renormalize = true;
      expect_goldens_choice(softmax);
      if (experts == groups) continue;  // no two best
      ops::BiasedGroupedTopk biased{.gating_output = logits(type, experts),
                                    .correction_bias = normal(DType::f32, {experts}, "bias"),
                                    .topk = 6,
                                    .num_expert_group = groups,
                                    .topk_group = kept};
      expect_goldens_choice(biased);
      biased.correction_bias.as<float>()[5] = -std::numeric_limits<float>::infinity();
      biased.correction_bias.as<float>()[6] = std::numeric_limits<float>::quiet_NaN();
      biased.num_fused_shared_experts = 1;
      biased.routed_scaling_factor = 2.5;
      biased.renormalize = biased.apply_routed_scaling_factor_on_output = true;
      expect_goldens_choice(biased);
    }
}

TEST(NativeRouters, AllExpertsMayBeChosen) {
  for (const char* const score : {"softmax", "sigmoid"})
    expect_goldens_choice(ops::FusedTopkTorchNative{.gating_output = logits(DType::f32, 17), .topk = 17, .scoring_func = score});
}

}  // namespace
}  // namespace dodona
