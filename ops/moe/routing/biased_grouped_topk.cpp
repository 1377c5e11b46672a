#include "ops/moe/routing/biased_grouped_topk.h"

#include <algorithm>
#include <cmath>

#include "ops/routing/scores.h"
#include "quant/element.h"

namespace dodona::ops {
namespace {

/// FlashInfer's kernel takes one group of more than 128 experts by warps of 128, each of which has places for 8 candidates and writes
/// topk of them. What shared memory held in the others, zeros, stands for expert 0 with a key of 0.
bool leaves_candidates_unwritten(const BiasedGroupedTopk& op) {
  return op.sigmoid == "tanh" && op.num_expert_group == 1 && op.gating_output.size(1) > 128 && op.topk < 8;
}

float score_of(const BiasedGroupedTopk& op, std::int64_t row, std::int64_t expert) {
  return tanh_sigmoid(static_cast<float>(quant::get(op.gating_output, row * op.gating_output.size(1) + expert)));
}

/// Whether column `column` of a row has expert 0 for want of another whose key is above 0.
bool has_unwritten_candidate(const BiasedGroupedTopk& actual, std::int64_t row, std::int64_t column) {
  if (quant::get(actual.topk_ids, row * actual.topk + column) != 0) return false;
  std::int64_t above = 0;
  for (std::int64_t e = 0; e < actual.gating_output.size(1); ++e)
    above += static_cast<double>(score_of(actual, row, e)) + quant::get(actual.correction_bias, e) > 0x1p-10 ? 1 : 0;
  return above <= column;
}

/// A row's weight as it follows from its ids.
bool follows_from_ids(const BiasedGroupedTopk& actual, std::int64_t row, std::int64_t column) {
  double sum = 0, own = 0;
  for (std::int64_t j = 0; j < actual.topk; ++j) {
    const auto id = static_cast<std::int64_t>(quant::get(actual.topk_ids, row * actual.topk + j));
    if (id < 0 || id >= actual.gating_output.size(1)) return false;
    const double score = score_of(actual, row, id);
    sum += score;
    if (j == column) own = score;
  }
  const double weight = own * actual.routed_scaling_factor / sum;
  return std::fabs(quant::get(actual.topk_weights, row * actual.topk + column) - weight) <= std::fabs(weight) * 0x1p-9;
}

bool explains_unwritten_candidates(const BiasedGroupedTopk& actual, std::string_view output, std::int64_t linear) {
  if (!leaves_candidates_unwritten(actual)) return false;
  const std::int64_t row = linear / actual.topk, column = linear % actual.topk;
  if (output == "topk_ids") return has_unwritten_candidate(actual, row, column);
  bool any = false;
  for (std::int64_t j = 0; j < actual.topk; ++j) any = any || has_unwritten_candidate(actual, row, j);
  return any && follows_from_ids(actual, row, column);
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_biased_grouped_topk() {
  using Call = ops::BiasedGroupedTopk;
  using enum ops::NativeRule;
  auto op = ops::native_router<Call>();
  op.contract = ops::native_router_contract(R"(
Scores are sigmoids, computed in fp32. With rounding=eager scores, the sum of the chosen, quotients and products are rounded to the logits'
type T; with compiled all of them stay fp32, but for the sum where there is a fused shared expert. Dropped groups are masked with -inf.
There is no hopper mode: torch.compile makes these kernels anew for each version of torch and the shapes that it has seen, and the order of
their sums with them. sigmoid=tanh: scores are 0.5 * t + 0.5 in fp32, t = tanh(0.5 x) within 2^-11 of it, relative: FlashInfer's
`fused_topk_deepseek`, whose tanhf its flags make the approximate instruction; nothing is rounded to T; weights of rows of which all chosen may score 0
are open.)");
  op.contract_version = 3;
  op.mistakes = {{"bias-in-weights", "the weights are made of score + bias, which is meant for choosing only",
                  ops::golden_native_router_of<Call, bias_in_weights>},
                 {"group-score-is-maximum", "a group's key is its best, not the sum of its two best",
                  ops::golden_native_router_of<Call, group_by_the_other_key>},
                 {"shared-expert-in-the-sum", "weights are divided by a sum that holds the shared expert's",
                  ops::golden_native_router_of<Call, shared_expert_in_the_sum>},
                 {"dropped-groups-count-as-zero",
                  "keys of groups that were dropped are masked with 0, more than the negative ones of those that were kept",
                  ops::golden_native_router_of<Call, dropped_count_as_zero>},
                 {"keys-in-bf16", "biased scores, and groups' sums of them, are kept in bf16, which experts and groups are chosen by",
                  ops::golden_native_router_of<Call, keys_in_bf16>}};
  op.defects = {{"candidates-never-written", "*",
                 "sigmoid=tanh, one group of more than 128 experts, topk below 8: candidates that the kernel never writes count as expert "
                 "0 with a key of 0, more than experts whose keys are negative",
                 ops::explains_unwritten_candidates}};
  op.cases = {"T=5 E=256 --attr topk=8 --attr renormalize=true --attr num_expert_group=8 --attr topk_group=4",
              // NOLINTNEXTLINE(bugprone-suspicious-missing-comma)
              "T=4 E=64 --dtype gating_output=bf16 --dist ties --attr topk=6 --attr renormalize=true --attr num_expert_group=8 --attr "
              "topk_group=4",
              "T=4 E=96 --dtype gating_output=bf16 --attr topk=7 --attr renormalize=true --attr num_fused_shared_experts=1 --attr "
              "routed_scaling_factor=2.5 --attr apply_routed_scaling_factor_on_output=true --attr num_expert_group=8 --attr topk_group=4 "
              "--attr rounding=eager",
              "T=3 E=256 --attr topk=9 --attr renormalize=true --attr num_fused_shared_experts=1 --attr routed_scaling_factor=2.5 --attr "
              "num_expert_group=8 --attr topk_group=4",
              "T=3 E=384 --attr topk=8 --attr num_expert_group=1 --attr topk_group=1 --attr renormalize=false",
              "T=4 E=64 --attr topk=6 --attr renormalize=true --attr num_expert_group=8 --attr topk_group=4 --special negative-weights",
              // NOLINTNEXTLINE(bugprone-suspicious-missing-comma)
              "T=5 E=256 --attr topk=8 --attr renormalize=true --attr num_expert_group=8 --attr topk_group=4 --attr "
              "routed_scaling_factor=2.5 --attr apply_routed_scaling_factor_on_output=true --attr sigmoid=tanh"};
  op.bench_cases = {"T=64 E=256 --attr topk=8 --attr renormalize=true --attr num_expert_group=8 --attr topk_group=4"};
  return define<Call>(std::move(op));
}
}  // namespace dodona
