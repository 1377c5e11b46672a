#include "ops/moe/biased_grouped_topk.h"

namespace dodona::ops {
namespace {

template <NativeRule rule>
void golden(const BiasedGroupedTopk& op, const Exec& exec, Reference* reference) {
  golden_native_route(op.router(), exec, reference, rule);
}
void condition(const BiasedGroupedTopk& actual, const Exec& exec, Reference& reference) {
  condition_native_route(actual.router(), exec, reference);
}
void fast(const BiasedGroupedTopk& op, const Exec& exec) {
  fast_native_route(op.router(), exec);
}
void check(const BiasedGroupedTopk& op) {
  check_native_route(op.router());
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_biased_grouped_topk() {
  return define<ops::BiasedGroupedTopk>({
      .contract = ops::native_router_contract(R"(
Scores are sigmoids, computed in fp32. With rounding=eager scores, the sum of the chosen, quotients and products are rounded to the logits'
type T; with compiled all of them stay fp32, but for the sum where there is a fused shared expert. Dropped groups are masked with -inf.
There is no hopper mode: torch.compile makes these kernels anew for each version of torch and the shapes that it has seen, and the order of
their sums with them.)"),
      .contract_version = 2,
      .golden = ops::golden<ops::NativeRule::right>,
      .fast = ops::fast,
      .check = ops::check,
      .condition = ops::condition,
      .mistakes = {{"bias-in-weights", "the weights are made of score + bias, which is meant for choosing only",
                    ops::golden<ops::NativeRule::bias_in_weights>},
                   {"group-score-is-maximum", "a group's key is its best, not the sum of its two best",
                    ops::golden<ops::NativeRule::group_by_the_other_key>},
                   {"shared-expert-in-the-sum", "weights are divided by a sum that holds the shared expert's",
                    ops::golden<ops::NativeRule::shared_expert_in_the_sum>},
                   {"dropped-groups-count-as-zero",
                    "keys of groups that were dropped are masked with 0, more than the negative ones of those that were kept",
                    ops::golden<ops::NativeRule::dropped_count_as_zero>},
                   {"keys-in-bf16", "biased scores, and groups' sums of them, are kept in bf16, which experts and groups are chosen by",
                    ops::golden<ops::NativeRule::keys_in_bf16>}},
      .cases = {"T=5 E=256 --attr topk=8 --attr renormalize=true --attr num_expert_group=8 --attr topk_group=4",
                // NOLINTNEXTLINE(bugprone-suspicious-missing-comma)
                "T=4 E=64 --dtype gating_output=bf16 --dist ties --attr topk=6 --attr renormalize=true --attr num_expert_group=8 --attr "
                "topk_group=4",
                "T=4 E=96 --dtype gating_output=bf16 --attr topk=7 --attr renormalize=true --attr num_fused_shared_experts=1 --attr "
                "routed_scaling_factor=2.5 --attr apply_routed_scaling_factor_on_output=true --attr num_expert_group=8 --attr topk_group=4 "
                "--attr rounding=eager",
                "T=3 E=256 --attr topk=9 --attr renormalize=true --attr num_fused_shared_experts=1 --attr routed_scaling_factor=2.5 --attr "
                "num_expert_group=8 --attr topk_group=4",
                "T=3 E=384 --attr topk=8 --attr num_expert_group=1 --attr topk_group=1 --attr renormalize=false",
                "T=4 E=64 --attr topk=6 --attr renormalize=true --attr num_expert_group=8 --attr topk_group=4 --special negative-weights"},
      .bench_cases = {"T=64 E=256 --attr topk=8 --attr renormalize=true --attr num_expert_group=8 --attr topk_group=4"},
  });
}
}  // namespace dodona
