#include "model/layer/decoder.h"

#include <string>

#include "core/define.h"
#include "dodona/error.h"
#include "model/layer/attention/attention.h"
#include "model/layer/experts/experts.h"
#include "model/layer/kernel_use.h"
#include "model/layer/mlp.h"
#include "model/layer/values.h"
#include "model/weights/tensor_list.h"
#include "ops/normalization/fused_add_rmsnorm.h"
#include "ops/normalization/rmsnorm.h"
#include "ops/utility/trtllm_allreduce_fusion.h"

namespace dodona::model {
namespace {

/// residual <- x + residual, x <- norm of the sum. Without a residual, x becomes it.
LayerState layernorm(const Pass& p, Part part, std::string_view name, const LayerState& in, const Tensor& weight) {
  const Tensor &x = in.hidden, &residual = in.residual;
  const std::string_view asked = used_kernel(p.weights.setting(), use_name(name));
  const bool fuses = asked.empty() ? p.weights.setting().residual == Residual::fused : asked == "fused_add_rmsnorm";
  const double eps = p.config().rms_norm_eps;
  const std::vector<Tensor> out =
      p.trace.run({.part = part,
                   .name = name,
                   .inputs = {{"input", x.shape()}},
                   .outputs = {{"output", x.dtype()}, {"residual", x.dtype(), x.shape()}},
                   .work = residual.defined() ? reading({x, residual, weight}) : reading({x, weight})},
                  [&]() -> std::vector<Tensor> {
                    if (residual.defined() && fuses) {
                      const auto fused = ops::run(
                          ops::FusedAddRmsnorm{.input = x.clone(), .residual = residual.clone(), .weight = weight, .eps = eps}, p.exec());
                      return {fused.input, fused.residual};
                    }
                    const Tensor added = residual.defined() ? sum(x, residual, p.exec().threads) : x;
                    return {ops::run(ops::Rmsnorm{.input = added, .weight = weight, .eps = eps}, p.exec()).output, added};
                  });
  return {out[0], out[1]};
}

/// FlashInfer's kernel that adds up what the ranks have, adds the residual and normalizes the sum, all at once.
LayerState reduced_layernorm(const Pass& p, Part part, std::string_view name, const LayerState& partial, const Tensor& weight) {
  const Tensor &x = partial.hidden, &residual = partial.residual, terms = terms_of_ranks(p, Shared::columns, x);
  Work work = reading({x});
  work.bytes *= static_cast<double>(p.weights.source().shard().heads.count);
  work += reading({residual, weight});
  const std::vector<Tensor> out =
      p.trace.run({.part = part,
                   .name = name,
                   .inputs = {{"input", x.shape()}},
                   .outputs = {{"output", x.dtype()}, {"residual", x.dtype(), x.shape()}},
                   .work = work},
                  [&]() -> std::vector<Tensor> {
                    const auto fused = ops::run(
                        ops::TrtllmAllreduceFusion{
                            .allreduce_in = terms, .residual_in = residual, .rms_gamma = weight, .rms_eps = p.config().rms_norm_eps},
                        p.exec());
                    return {fused.norm_out, fused.residual_out};
                  });
  return {out[0], out[1]};
}

LayerState input_norm(const Pass& p, Part part, const LayerState& state) {
  constexpr std::string_view name = "self.input_layernorm()";
  const Tensor& weight = p.weights.input_layernorm;
  if (reduces_in_norm(p.weights.setting().use, use_name(name))) return reduced_layernorm(p, part, name, state, weight);
  return layernorm(p, part, name, state, weight);
}

/// The sum over all ranks of what attention gives, and the residual, normalized.
LayerState post_attention(const Pass& p, Part part, const LayerState& attended) {
  constexpr std::string_view name = "self.post_attention_layernorm()";
  const Tensor& weight = p.weights.post_attention_layernorm;
  if (reduces_in_norm(p.weights.setting().use, use_name(name))) return reduced_layernorm(p, part, name, attended, weight);
  return layernorm(p, part, name, {all_reduced(p, Shared::columns, part, "attention", attended.hidden), attended.residual}, weight);
}

void check_tensor(const char* name, const Tensor& tensor, const Dims& shape, DType type) {
  if (!(tensor.shape() == shape))
    throw Error(ErrorCode::bad_shape, "", name, "has shape " + to_string(tensor.shape()) + ", expected [T, H] = " + to_string(shape));
  if (tensor.dtype() != type)
    throw Error(ErrorCode::bad_dtype, "", name,
                "has dtype " + std::string(dodona::name(tensor.dtype())) + ", expected " + std::string(dodona::name(type)));
}

void check(const LayerWeights& weights, const Batch& batch, const LayerState& state, const PagedKvCache& cache) {
  const Dims shape{batch.tokens(), weights.config().hidden_size};
  check_tensor("hidden", state.hidden, shape, weights.type());
  const bool first = is_first_layer(weights.source().config(), weights.layer());
  if (state.residual.defined() == first)
    throw Error(ErrorCode::missing_argument, "", "residual",
                (first ? "is given, but layer " : "is missing: layer ") + std::to_string(weights.layer()) +
                    (first ? " takes embeddings alone" : " takes one beside hidden"));
  if (!first) check_tensor("residual", state.residual, shape, weights.type());
  if (const DType type = weights.setting().cache_type(); cache.buffer().dtype() != type)
    throw Error(ErrorCode::bad_dtype, "", "kv_cache",
                "holds " + std::string(dodona::name(cache.buffer().dtype())) + ", expected " + std::string(dodona::name(type)));
}

}  // namespace

namespace {

/// nullptr in dense layers.
const ExpertsBackend* experts_of(const ModelConfig& config, const LayerSetting& setting) {
  if (!config.is_moe_layer(setting.layer)) return nullptr;
  return &choose_experts(config, setting);
}

}  // namespace

ShapeBook layer_book(const WeightSource& source, const LayerSetting& setting, const Batch& batch, bool sizes) {
  const ModelConfig& config = source.config();
  config.check_layer(setting.layer);
  const AttentionChoice attention = choose_attention(config, setting, batch);
  const ExpertsBackend* const experts = experts_of(config, setting);
  const std::int64_t each = batch.tokens_each();
  BookOptions options{.batch = sizes ? batch.size() : 0,
                      .layer = setting.layer,
                      .fused_shared = setting.fused_shared,
                      .low_latency = setting.low_latency,
                      .rounding = setting.rounding,
                      .residual = setting.residual,
                      .attention_kernel = attention.kernel(),
                      .rope_kernel = attention.quantizes_with_rope ? "mla_rope_quantize_fp8" : "apply_rope_with_cos_sin_cache_inplace",
                      .experts_kernel = experts != nullptr ? kernel_of(*experts, config, setting) : std::string_view(),
                      .sums_by_rank = experts != nullptr && sums_by_rank(*experts, setting),
                      .use = setting.use,
                      .hands_on_terms = setting.hands_on_terms,
                      .shard = source.shard()};
  if (attention.expands() && each > 0) options.sequence = sizes ? each : 0;
  if (attention.expands() ? each == 0 : each != 1) options.tokens = sizes ? batch.tokens() : 0;
  const Phase phase = attention.expands() ? Phase::prefill : config.is_nextn_layer(setting.layer) ? Phase::nextn : Phase::decode;
  return ShapeBook(config, phase, options);
}

Trace layer_trace(const LayerWeights& weights, const Batch& batch, const Exec& exec, Trace::Bodies bodies) {
  const auto book = [&](bool sizes) { return layer_book(weights.source(), weights.setting(), batch, sizes); };
  return Trace(book(true), book(false), exec, bodies);
}

LayerState run_layer(LayerWeights& weights, const Batch& batch, const LayerState& state, PagedKvCache& cache, Trace& trace,
                     const Ranks& ranks) {
  check(weights, batch, state, cache);
  if (!trace.plans()) {
    cache.check(batch);
    const Shard& shard = weights.source().shard();
    if ((!shard.heads.whole() && ranks.tensor == nullptr) || (!shard.experts.whole() && ranks.experts == nullptr))
      throw Error(ErrorCode::unsupported, "", "shard", "of " + weights.config().name + ": the ranks that hold the others are missing");
  }
  const Pass pass{weights, batch, cache, trace, choose(weights, batch), ranks};
  trace.enter("layer()");
  const Trace::Scope layer(trace);
  const bool rotates = pass.choices.attention.path == AttentionPath::mla_fused_rope;
  const LayerState before = input_norm(pass, rotates ? Part::attention_fused : Part::attention, state);
  if (pass.choices.attention.expands()) weights.touch_kv_b(trace.exec());
  const Part part = weights.is_moe() ? Part::mlp_moe : Part::mlp_dense;
  const LayerState after = post_attention(pass, part, {self_attn(pass, before.hidden), before.residual});
  const Tensor mlp = weights.is_moe() ? moe(pass, after.hidden) : dense_mlp(pass, after.hidden);
  LayerState output{weights.setting().hands_on_terms ? mlp : all_reduced(pass, Shared::columns, part, "mlp", mlp), after.residual};
  trace.gives({{"hidden", output.hidden}, {"residual", output.residual}});
  return output;
}

}  // namespace dodona::model
