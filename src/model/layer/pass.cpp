#include "model/layer/pass.h"

#include "core/define.h"
#include "model/layer/attention/attention.h"
#include "model/layer/kernel_use.h"
#include "ops/normalization/rmsnorm.h"

namespace dodona::model {

Choices choose(const LayerWeights& weights, const Batch& batch) {
  const Rounding rounding = weights.setting().rounding;
  const std::int64_t tokens = batch.tokens();
  const auto low_latency = [&](const LowLatencyKernel& kernel, const Projection& projection, std::string_view op) {
    const std::string_view asked = used_kernel(weights.setting(), op);
    const bool may = weights.setting().low_latency && (asked.empty() || asked == kernel.name);
    return may ? kernel.chosen(projection, tokens, rounding) : nullptr;
  };
  return {.attention = choose_attention(weights.config(), weights.setting(), batch),
          .fused_qkv_a = low_latency(fused_a_kernel, weights.fused_qkv_a, "fused_qkv_a_proj_with_mqa"),
          .router = low_latency(router_kernel, weights.gate, "gate")};
}

Tensor Pass::project(Part part, std::string_view name, const Projection& projection, const Tensor& x) const {
  return trace.run1({.part = part,
                     .name = name,
                     .inputs = {{"input", x.shape()}},
                     .outputs = {{"output", x.dtype()}},
                     .work = projection.work(x.size(0), x.dtype())},
                    [&] { return projection(x, exec()); });
}

Tensor Pass::rmsnorm(Part part, std::string_view name, const Tensor& x, const Tensor& weight) const {
  return trace.run1(
      {.part = part, .name = name, .inputs = {{"input", x.shape()}}, .outputs = {{"output", x.dtype()}}, .work = reading({x, weight})},
      [&] { return ops::run(ops::Rmsnorm{.input = x, .weight = weight, .eps = config().rms_norm_eps}, exec()).output; });
}

}  // namespace dodona::model
