#include "ops/moe/routing/biased_grouped_topk.h"

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
