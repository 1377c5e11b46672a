#include "ops/moe/routing/fused_topk_torch_native.h"

namespace dodona {
std::unique_ptr<Op> op_fused_topk_torch_native() {
  using Call = ops::FusedTopkTorchNative;
  using enum ops::NativeRule;
  auto op = ops::native_router<Call>();
  op.contract = ops::native_router_contract(R"(
Scores (softmax: the share of exp(x - max); sigmoid) are computed in fp32. With a bias they are rounded to the logits' type T, and so are
sums and quotients; without one all is fp32.)");
  op.contract_version = 2;
  op.mistakes = {{"bias-in-weights", "the weights are made of score + bias, which is meant for choosing only",
                  ops::golden_native_router_of<Call, bias_in_weights>}};
  op.cases = {"T=5 E=256 --attr topk=8 --attr renormalize=true",
              "T=4 E=64 --dtype gating_output=bf16 --dist ties --attr topk=6 --attr renormalize=false --attr scoring_func=sigmoid --with "
              "correction_bias",
              "T=3 E=48 --dtype gating_output=f16 --attr topk=4 --attr renormalize=true --with correction_bias"};
  op.bench_cases = {"T=64 E=256 --attr topk=8 --attr renormalize=true"};
  return define<Call>(std::move(op));
}
}  // namespace dodona
