#include "model/mlp.h"

#include "core/define.h"
#include "model/experts.h"
#include "model/values.h"
#include "model/work.h"
#include "ops/activation/silu_and_mul.h"
#include "ops/gemm/dsv3_router_gemm.h"
#include "ops/moe/moe_fused_gate.h"

namespace dodona::model {
namespace {

Tensor gated_mlp(Part part, const MlpWeights& weights, Rounding rounding, const Tensor& x, Trace& trace) {
  const std::int64_t tokens = x.size(0);
  const Tensor gate_up = trace.op1(part, "self.gate_up_proj()", {}, {{"input", x.shape()}}, projected(weights.gate_up, tokens, rounding),
                                   [&] { return weights.gate_up(x, trace.exec()); });
  const Tensor activated = trace.op1(part, "self.act_fn()", {}, {{"input", gate_up.shape()}}, moved({gate_up}),
                                     [&] { return ops::run(ops::SiluAndMul{.input = gate_up}, trace.exec()).out; });
  return trace.op1(part, "self.down_proj()", {}, {{"input", activated.shape()}}, projected(weights.down, tokens, rounding),
                   [&] { return weights.down(activated, trace.exec()); });
}

/// Logits in fp32. Up to 16 tokens upstream has a kernel with fp32 outputs for bf16 weights; else the outputs of a linear, rounded to bf16.
Tensor gate(const LayerWeights& weights, const Tensor& x, Trace& trace) {
  const Projection& router = weights.gate;
  return trace.op1(Part::mlp_moe, "self.gate()", {}, {{"input", x.shape()}}, projected(router, x.size(0), weights.rounding()), [&] {
    const bool low_latency = trace.book().at(Part::mlp_moe, "self.gate()").kernel == "dsv3_router_gemm";
    if (weights.rounding() == Rounding::bf16 && low_latency)
      return ops::run(ops::Dsv3RouterGemm{.hidden_states = x, .router_weights = router.bf16(), .out_dtype = DType::f32}, trace.exec())
          .output;
    return widened(router(x, trace.exec()));
  });
}

struct Chosen {
  Tensor weights, ids;
};
Chosen topk(const LayerWeights& weights, const Tensor& logits, Trace& trace) {
  const ModelConfig& config = weights.config();
  const std::int64_t shared = weights.fused_shared() ? 1 : 0;
  Chosen chosen;
  trace.op(Part::mlp_moe, "self.topk()", {}, {{"input", logits.shape()}}, moved({logits, weights.correction_bias}), [&]() -> NamedTensors {
    const auto run = ops::run(ops::MoeFusedGate{.input_tensor = logits,
                                                .bias = weights.correction_bias,
                                                .num_expert_group = config.n_group,
                                                .topk_group = config.topk_group,
                                                .topk = config.num_experts_per_tok + shared,
                                                .num_fused_shared_experts = shared,
                                                .routed_scaling_factor = config.routed_scaling_factor,
                                                .apply_routed_scaling_factor_on_output = scales_router_weights(weights)},
                              trace.exec());
    chosen = {run.topk_weights, run.topk_ids};
    return {{"topk_weights", chosen.weights}, {"topk_ids", chosen.ids}};
  });
  return chosen;
}

}  // namespace

Tensor dense_mlp(const LayerWeights& weights, const Tensor& x, Trace& trace) {
  trace.enter("self.mlp()");
  const Trace::Scope mlp(trace);
  Tensor out = gated_mlp(Part::mlp_dense, weights.mlp, weights.rounding(), x, trace);
  trace.gives({{"output", out}});
  return out;
}

Tensor moe(LayerWeights& weights, const Tensor& x, Trace& trace) {
  trace.enter("self.mlp()");
  const Trace::Scope mlp(trace);
  const Tensor logits = gate(weights, x, trace);
  const Chosen chosen = topk(weights, logits, trace);
  weights.touch({chosen.ids.as<std::int32_t>(), static_cast<std::size_t>(chosen.ids.elements())}, trace.exec());
  Tensor shared;
  if (weights.shared.gate_up.defined()) {
    trace.enter(Part::mlp_moe, "self.shared_experts()");
    const Trace::Scope scope(trace);
    shared = gated_mlp(Part::shared_experts, weights.shared, weights.rounding(), x, trace);
    trace.gives({{"output", shared}});
  }
  const Tensor routed = routed_experts(weights, x, chosen.weights, chosen.ids, trace);
  Tensor out = shared.defined() ? sum(routed, shared, trace.exec().threads) : routed;
  trace.gives({{"output", out}});
  return out;
}

}  // namespace dodona::model
