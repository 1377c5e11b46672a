#include "model/layer/mlp.h"

#include "core/define.h"
#include "model/layer/experts/experts.h"
#include "model/layer/kernel_use.h"
#include "model/layer/values.h"
#include "ops/activation/gelu_and_mul.h"
#include "ops/activation/gelu_tanh_and_mul.h"
#include "ops/activation/silu_and_mul.h"
#include "ops/moe/routing/select_experts.h"

namespace dodona::model {
namespace {

/// Upstream's models take `hidden_act` silu alone; the others are its ops' too.
Tensor activate(const Pass& p, std::string_view kernel, const Tensor& gate_up) {
  if (kernel == "gelu_and_mul") return ops::run(ops::GeluAndMul{.input = gate_up}, p.exec()).out;
  if (kernel == "gelu_tanh_and_mul") return ops::run(ops::GeluTanhAndMul{.input = gate_up}, p.exec()).out;
  return ops::run(ops::SiluAndMul{.input = gate_up}, p.exec()).out;
}

Tensor gated_mlp(const Pass& p, Part part, const MlpWeights& weights, const Tensor& x) {
  const std::string act_fn = use_name("act_fn", part == Part::shared_experts);
  const Tensor gate_up = p.project(part, "self.gate_up_proj()", weights.gate_up, x);
  const Tensor activated = p.trace.run1({.part = part,
                                         .name = "self.act_fn()",
                                         .inputs = {{"input", gate_up.shape()}},
                                         .outputs = {{"output", gate_up.dtype()}},
                                         .work = reading({gate_up})},
                                        [&] { return activate(p, used_kernel(p.weights.setting(), act_fn), gate_up); });
  return p.project(part, "self.down_proj()", weights.down, activated);
}

/// Logits in fp32: the low-latency kernel gives them so; a linear's are rounded to the activations' type on their way.
Tensor gate(const Pass& p, const Tensor& x) {
  const Projection& router = p.weights.gate;
  return p.trace.run1({.part = Part::mlp_moe,
                       .name = "self.gate()",
                       .inputs = {{"input", x.shape()}},
                       .outputs = {{"output", DType::f32}},
                       .work = router.work(p.tokens(), x.dtype())},
                      [&] {
                        const LowLatencyKernel* const kernel = p.choices.router;
                        return kernel != nullptr ? kernel->apply(router, x, p.exec()) : widened(router(x, p.exec()));
                      });
}

/// Every rank of the experts has the fused shared expert, the last column's, and their sums are added up: each gives its part. Source:
/// sglang's `fused_shared_experts_scaling_factor`.
void part_shared(const Pass& p, const Tensor& weights) {
  const std::int64_t ranks = p.weights.source().shard().experts.count, columns = weights.size(1);
  if (ranks == 1 || !p.weights.setting().fused_shared) return;
  for (std::int64_t t = 0; t < weights.size(0); ++t) weights.as<float>()[(t + 1) * columns - 1] *= 1.0f / static_cast<float>(ranks);
}

Routing topk(const Pass& p, const Tensor& logits) {
  const ModelConfig& config = p.config();
  const std::int64_t shared = p.weights.setting().fused_shared ? 1 : 0;
  const std::vector<Tensor> chosen = p.trace.run(
      {.part = Part::mlp_moe,
       .name = "self.topk()",
       .inputs = {{"input", logits.shape()}},
       .outputs = {{"topk_weights", DType::f32}, {"topk_ids", DType::i32}},
       .work = reading({logits, p.weights.correction_bias})},
      [&]() -> std::vector<Tensor> {
        const std::string_view asked = used_kernel(p.weights.setting(), "topk");
        const bool by_columns = asked == "topk_softmax" || asked == "topk_sigmoid";
        const bool scales = p.weights.backend().factor == FactorPlace::router;
        ops::SelectExperts run{.router_logits = logits,
                               .correction_bias = p.weights.correction_bias,
                               .top_k = config.num_experts_per_tok + shared,
                               .topk_group = config.topk_group,
                               .num_expert_group = config.n_group,
                               .num_fused_shared_experts = shared,
                               .use_grouped_topk = !by_columns,
                               .renormalize = config.norm_topk_prob,
                               .apply_routed_scaling_factor_on_output = scales && !by_columns,
                               .routed_scaling_factor = config.routed_scaling_factor,
                               .scoring_func = asked == "topk_sigmoid" ? "sigmoid" : "softmax"};
        ops::select_by_router(run, p.exec());
        part_shared(p, run.topk_weights);
        // Ungrouped routers know no factor: their weights take it, as all weights of such a backend do.
        const bool behind = scales && by_columns;
        return {behind ? times(run.topk_weights, static_cast<float>(config.routed_scaling_factor)) : run.topk_weights, run.topk_ids};
      });
  return {chosen[0], chosen[1], rows_of_experts(p, chosen[1])};
}

Tensor shared_experts(const Pass& p, const Tensor& x) {
  p.trace.enter(Part::mlp_moe, "self.shared_experts()");
  const Trace::Scope scope(p.trace);
  Tensor out = gated_mlp(p, Part::shared_experts, p.weights.shared, x);
  p.trace.gives({{"output", out}});
  return out;
}

/// The experts' sum with the shared expert's, which may be undefined.
Tensor with_shared(const Pass& p, const Tensor& routed, const Tensor& shared) {
  const bool scales = p.weights.backend().factor == FactorPlace::addition;
  const float factor = scales ? static_cast<float>(p.config().routed_scaling_factor) : 1.0f;
  if (shared.defined()) return sum(shared, routed, p.exec().threads, factor);
  return scales ? times(routed, factor) : routed;
}

}  // namespace

Tensor dense_mlp(const Pass& p, const Tensor& x) {
  p.trace.enter("self.mlp()");
  const Trace::Scope mlp(p.trace);
  Tensor out = gated_mlp(p, Part::mlp_dense, p.weights.mlp, x);
  p.trace.gives({{"output", out}});
  return out;
}

Tensor moe(const Pass& p, const Tensor& x) {
  p.trace.enter("self.mlp()");
  const Trace::Scope mlp(p.trace);
  const bool shares = p.weights.shared.gate_up.defined(), first = p.weights.setting().dual_stream;
  Tensor shared = shares && first ? shared_experts(p, x) : Tensor();
  const Routed routed = of_all_ranks(p, x, topk(p, gate(p, x)));
  p.weights.touch(rows_here(p, routed.routing.counts), p.exec());
  if (shares && !first) shared = shared_experts(p, x);
  Tensor out = routed_experts(p, routed);
  if (!p.trace.plans()) out = with_shared(p, out, shared);
  p.trace.gives({{"output", out}});
  return out;
}

}  // namespace dodona::model
