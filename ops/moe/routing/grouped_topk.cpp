#include "ops/moe/routing/grouped_topk.h"

namespace dodona {
std::unique_ptr<Op> op_grouped_topk() {
  using Call = ops::GroupedTopk;
  using enum ops::NativeRule;
  auto op = ops::native_router<Call>();
  op.contract = ops::native_router_contract(R"(
Scores are the share of exp(x - max), computed in fp32 and rounded to the logits' type T. With rounding=eager the sum of the chosen, quotients
and products are rounded to T too; with compiled they stay fp32, but for the sum where there is a fused shared expert. Scores of dropped groups
become 0: where fewer experts of kept groups than are chosen score more than 0, experts of dropped ones may be chosen, and weigh 0.
There is no hopper mode: torch.compile makes these kernels anew for each version of torch and the shapes that it has seen, and the order of
their sums with them.)");
  op.contract_version = 2;
  op.mistakes = {{"group-score-is-a-sum", "a group's key is the sum of its two best, as sigmoid routers have it",
                  ops::golden_native_router_of<Call, group_by_the_other_key>},
                 {"shared-expert-in-the-sum", "weights are divided by a sum that holds the shared expert's",
                  ops::golden_native_router_of<Call, shared_expert_in_the_sum>}};
  op.cases = {"T=5 E=160 --attr renormalize=false --attr num_expert_group=8 --attr topk_group=3 --attr topk=6",
              "T=4 E=64 --dtype gating_output=bf16 --dist ties --attr renormalize=true --attr num_expert_group=8 --attr topk_group=3 "
              "--attr topk=6",
              "T=4 E=64 --dtype gating_output=f16 --attr renormalize=true --attr num_expert_group=8 --attr topk_group=3 --attr topk=6 "
              "--attr rounding=eager",
              "T=3 E=64 --attr renormalize=true --attr num_fused_shared_experts=1 --attr routed_scaling_factor=2.5 --attr "
              "apply_routed_scaling_factor_on_output=true --attr num_expert_group=8 --attr topk_group=3 --attr topk=6"};
  op.bench_cases = {"T=64 E=160 --attr renormalize=false --attr num_expert_group=8 --attr topk_group=3 --attr topk=6"};
  return define<Call>(std::move(op));
}
}  // namespace dodona
