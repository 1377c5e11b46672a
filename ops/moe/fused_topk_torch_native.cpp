#include "ops/moe/fused_topk_torch_native.h"

namespace dodona::ops {
namespace {

template <NativeRule rule>
void golden(const FusedTopkTorchNative& op, const Exec& exec, Reference* reference) {
  golden_native_route(op.router(), exec, reference, rule);
}
void condition(const FusedTopkTorchNative& actual, const Exec& exec, Reference& reference) {
  condition_native_route(actual.router(), exec, reference);
}
void fast(const FusedTopkTorchNative& op, const Exec& exec) {
  fast_native_route(op.router(), exec);
}
void check(const FusedTopkTorchNative& op) {
  check_native_route(op.router());
}

}  // namespace
}  // namespace dodona::ops

namespace dodona {
std::unique_ptr<Op> op_fused_topk_torch_native() {
  return define<ops::FusedTopkTorchNative>({
      .contract = ops::native_router_contract(R"(
Scores (softmax: the share of exp(x - max); sigmoid) are computed in fp32. With a bias they are rounded to the logits' type T, and so are
sums and quotients; without one all is fp32.)"),
      .golden = ops::golden<ops::NativeRule::right>,
      .fast = ops::fast,
      .check = ops::check,
      .condition = ops::condition,
      .mistakes = {{"bias-in-weights", "the weights are made of score + bias, which is meant for choosing only",
                    ops::golden<ops::NativeRule::bias_in_weights>}},
      .cases = {"T=5 E=256 --attr topk=8 --attr renormalize=true",
                "T=4 E=64 --dtype gating_output=bf16 --dist ties --attr topk=6 --attr renormalize=false --attr scoring_func=sigmoid --with "
                "correction_bias",
                "T=3 E=48 --dtype gating_output=f16 --attr topk=4 --attr renormalize=true --with correction_bias"},
      .bench_cases = {"T=64 E=256 --attr topk=8 --attr renormalize=true"},
  });
}
}  // namespace dodona
