#include "model/layer/pass.h"

#include "core/define.h"
#include "model/layer/attention.h"
#include "ops/normalization/rmsnorm.h"

namespace dodona::model {

Choices choose(const LayerWeights& weights, const Batch& batch) {
  const Rounding rounding = weights.setting().rounding;
  const std::int64_t tokens = batch.tokens();
  const bool low_latency = weights.setting().low_latency;
  return {.attention = choose_attention(weights.config(), weights.setting(), batch),
          .fused_qkv_a = low_latency ? fused_a_kernel.chosen(weights.fused_qkv_a, tokens, rounding) : nullptr,
          .router = low_latency ? router_kernel.chosen(weights.gate, tokens, rounding) : nullptr};
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
