// Experts by one kernel, from tokens to their sums: FlashInfer's, of fp8 blocks.
#include <cstring>
#include <limits>
#include <vector>

#include "core/define.h"
#include "dodona/error.h"
#include "model/layer/experts.h"
#include "ops/moe/cutlass_fused_moe.h"
#include "ops/moe/trtllm_fp8_block_scale_moe.h"
#include "ops/quantization/sgl_per_token_group_quant_fp8.h"
#include "quant/sizes.h"

namespace dodona::model {
namespace {

/// One weight of all experts that have rows, in the order of their ids.
struct Stack {
  Tensor codes, scales;  ///< [E, N, K], [E, N/128, K/128]
};

/// Copies a matrix, its two halves of rows exchanged.
void put_exchanged(const Tensor& one, const Tensor& all, std::int64_t at) {
  const auto half = static_cast<std::size_t>(bytes_for(one.dtype(), one.elements()) / 2);
  std::byte* const to = all.as<std::byte>() + 2 * half * static_cast<std::size_t>(at);
  std::memcpy(to, one.as<std::byte>() + half, half);
  std::memcpy(to + half, one.as<std::byte>(), half);
}
void put(const Tensor& one, const Tensor& all, std::int64_t at) {
  const auto bytes = static_cast<std::size_t>(bytes_for(one.dtype(), one.elements()));
  std::memcpy(all.as<std::byte>() + bytes * static_cast<std::size_t>(at), one.data(), bytes);
}

/// What a kernel is called with: weights of the experts that have rows, up before gate.
struct Experts {
  const LayerWeights& weights;
  const Tensor& x;
  const Routing& routing;
  std::vector<ExpertRows> groups = groups_of(routing.counts);

  std::int64_t count() const { return static_cast<std::int64_t>(groups.size()); }
  std::int64_t tokens() const { return x.size(0); }
  std::int64_t topk() const { return routing.ids.size(1); }
  std::int64_t hidden() const { return weights.config().hidden_size; }
  std::int64_t width() const { return weights.config().moe_intermediate_size; }

  std::vector<std::int64_t> ids() const { return experts_of(groups); }
  std::vector<std::int64_t> places() const { return places_among(ids(), routing); }

  Stack stacked(Projection MlpWeights::*member, void (*copy)(const Tensor&, const Tensor&, std::int64_t)) const {
    const Projection& any = weights.expert(groups.front().expert).*member;
    const Dims codes = any.weight.weight.shape(), scales = any.block_scales.shape();
    const Stack stack{Tensor::uninitialized(DType::f8_e4m3, {count(), codes[0], codes[1]}),
                      Tensor(DType::f32, {count(), scales[0], scales[1]})};
    for (std::int64_t i = 0; i < count(); ++i) {
      const Projection& projection = weights.expert(groups[static_cast<std::size_t>(i)].expert).*member;
      copy(projection.weight.weight, stack.codes, i);
      copy(projection.block_scales, stack.scales, i);
    }
    return stack;
  }
  Stack first() const { return stacked(&MlpWeights::gate_up, put_exchanged); }
  Stack second() const { return stacked(&MlpWeights::down, put); }

  /// What an honest implementation's sums are, by the composition's golden mode.
  std::vector<ops::Bounded> bounded(ops::WholeMoe moe, const Exec& exec) const {
    const Stack up_gate = first(), down = second();
    moe.x = x;
    moe.first = {.codes = up_gate.codes, .scales = up_gate.scales, .n = 2 * width(), .k = hidden()};
    moe.second = {.codes = down.codes, .scales = down.scales, .n = hidden(), .k = width()};
    const std::vector<std::int64_t> place = places();
    for (std::int64_t t = 0; t < tokens(); ++t) {
      ops::TokenExperts route;
      for (std::int64_t i = t * topk(); i < (t + 1) * topk(); ++i) {
        const auto weight = static_cast<double>(routing.weights.as<float>()[i]);
        route.experts.push_back(place[static_cast<std::size_t>(routing.ids.as<std::int32_t>()[i])]);
        route.weights.push_back({moe.scheme.weights_in_f32 ? weight : quant::round_to(DType::bf16, weight)});
      }
      moe.routes.push_back(std::move(route));
    }
    moe.output = Tensor(DType::bf16, x.shape());
    Reference reference;
    ops::golden_whole_moe(moe, exec, &reference);
    const ReferenceOutput& record = *reference.find("output");
    std::vector<ops::Bounded> sums;
    for (std::size_t i = 0; i < record.exact.size(); ++i)
      sums.push_back(
          ops::rounded_to(DType::bf16, {record.exact[i], record.slack[i], !record.unspecified.empty() && record.unspecified[i] != 0}));
    return sums;
  }
};

/// Tokens by sglang's quantizer, as both kernels take them.
ops::MoeScheme of_tokens(ops::MoeScheme scheme, const ops::Requantizer& rows) {
  scheme.rows_become = rows;
  return scheme;
}

// ---- trtllm-gen

/// Its routing as one that gives back the weights: the best logits, which are the weights themselves.
Tensor logits_of(const Experts& e, std::int64_t experts) {
  const Tensor logits = Tensor::uninitialized(DType::f32, {e.tokens(), experts});
  for (std::int64_t i = 0; i < logits.elements(); ++i) logits.as<float>()[i] = -std::numeric_limits<float>::infinity();
  const std::vector<std::int64_t> place = e.places();
  for (std::int64_t i = 0; i < e.routing.ids.elements(); ++i) {
    const std::int32_t id = e.routing.ids.as<std::int32_t>()[i];
    float& logit = logits.as<float>()[i / e.topk() * experts + place[static_cast<std::size_t>(id)]];
    if (logit != -std::numeric_limits<float>::infinity())
      throw Error(ErrorCode::unsupported, "", "experts",
                  "are run by trtllm, whose routing sends no token to one expert twice, as token " + std::to_string(i / e.topk()) +
                      " goes to expert " + std::to_string(id));
    logit = e.routing.weights.as<float>()[i];
  }
  return logits;
}

Tensor by_trtllm(const Experts& e, const Exec& exec) {
  const auto tokens = ops::run(ops::SglPerTokenGroupQuantFp8{.input = e.x}, exec);
  const Stack up_gate = e.first(), down = e.second();
  const std::int64_t experts = quant::align(e.count(), 4);
  return ops::run(ops::TrtllmFp8BlockScaleMoe{.routing_logits = logits_of(e, experts),
                                              .hidden_states = tokens.output_q,
                                              .hidden_states_scale = tokens.output_s.transpose(0, 1).clone(),
                                              .gemm1_weights = up_gate.codes,
                                              .gemm1_weights_scale = up_gate.scales,
                                              .gemm2_weights = down.codes,
                                              .gemm2_weights_scale = down.scales,
                                              .num_experts = experts,
                                              .top_k = e.topk(),
                                              .intermediate_size = e.width(),
                                              .local_num_experts = e.count(),
                                              .routing_method_type = "TopK"},
                  exec)
      .output;
}
std::vector<ops::Bounded> bounded_trtllm(const LayerWeights& weights, const Tensor& x, const Routing& routing, const Exec& exec) {
  return Experts{weights, x, routing}.bounded({.scheme = of_tokens(ops::trtllm_fp8_blocks, ops::sgl_fp8_groups)}, exec);
}

// ---- CUTLASS, as FlashInfer has it

Tensor by_flashinfer_cutlass(const Experts& e, const Exec& exec) {
  const Stack up_gate = e.first(), down = e.second();
  return ops::run(ops::CutlassFusedMoe{.input = e.x,
                                       .token_selected_experts = local_ids(e.routing, e.ids(), DType::i32),
                                       .token_final_scales = e.routing.weights,
                                       .fc1_expert_weights = up_gate.codes,
                                       .fc2_expert_weights = down.codes,
                                       .fc1_weight_scale = up_gate.scales,
                                       .fc2_weight_scale = down.scales,
                                       .use_deepseek_fp8_block_scale = true},
                  exec)
      .output;
}
std::vector<ops::Bounded> bounded_flashinfer_cutlass(const LayerWeights& weights, const Tensor& x, const Routing& routing,
                                                     const Exec& exec) {
  return Experts{weights, x, routing}.bounded({.scheme = ops::cutlass_fp8_blocks}, exec);
}

template <Tensor (*kernel)(const Experts&, const Exec&)>
Tensor run(const Pass& p, const Tensor& x, const Routing& routing) {
  Work work = {};
  for (const ExpertRows& group : groups_of(routing.counts)) {
    const MlpWeights& expert = p.weights.expert(group.expert);
    work += expert.gate_up.work(group.rows, x.dtype());
    work += expert.down.work(group.rows, x.dtype());
  }
  return run_experts(p, x, work, [&] { return kernel(Experts{p.weights, x, routing}, p.exec()); });
}

const LinearMethod* as_blocks(const LinearMethod& stored) {
  return stored.apply != nullptr ? &fp8_blocks_method : nullptr;
}

}  // namespace

const ExpertsBackend trtllm_experts{.name = "trtllm",
                                    .weights = ExpertWeights::fp8,
                                    .kernel = "trtllm_fp8_block_scale_moe",
                                    .factor = FactorPlace::router,
                                    .fuses_shared = false,
                                    .accepts = as_blocks,
                                    .run = run<by_trtllm>,
                                    .bounded = bounded_trtllm};
const ExpertsBackend flashinfer_cutlass_experts{.name = "flashinfer_cutlass",
                                                .weights = ExpertWeights::fp8,
                                                .kernel = "cutlass_fused_moe",
                                                .factor = FactorPlace::router,
                                                .accepts = as_blocks,
                                                .run = run<by_flashinfer_cutlass>,
                                                .bounded = bounded_flashinfer_cutlass};

}  // namespace dodona::model
