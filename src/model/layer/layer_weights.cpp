#include "model/layer/layer_weights.h"

#include "dodona/error.h"
#include "model/layer/experts.h"
#include "model/layer/values.h"
#include "model/weights/tensor_list.h"
#include "model/weights/without_memory.h"

namespace dodona::model {
namespace {

void check_setting(const ModelConfig& config, const LayerSetting& setting) {
  config.check_layer(setting.layer);
  const bool moe = config.is_moe_layer(setting.layer);
  if (setting.fused_shared && !moe)
    throw Error(ErrorCode::bad_option, "", "fused shared expert", "is asked for, but layer " + std::to_string(setting.layer) + " is dense");
  if (setting.fused_shared && config.n_shared_experts != 1)
    throw Error(ErrorCode::bad_option, "", "fused shared expert",
                "needs exactly one shared expert, " + config.name + " has " + std::to_string(config.n_shared_experts));
  if (config.sparse() && setting.rounding != Rounding::bf16)
    throw Error(ErrorCode::unsupported, "", "rounding", "is off, but the indexer of sparse attention quantizes");
  if (moe && !config.norm_topk_prob)
    throw Error(ErrorCode::unsupported, "", "norm_topk_prob", "is false, but moe_fused_gate always renormalizes the weights");
}

}  // namespace

std::string LayerWeights::full(const std::string& module) const {
  return layer_prefix(setting_.layer) + module;
}

Projection LayerWeights::projection(const std::vector<std::string>& modules, const LinearMethod& method, const Exec& exec) const {
  std::vector<std::string> names;
  for (const std::string& module : modules) names.push_back(full(module));
  Projection result{.method = &method, .weight = source_->sizes_alone() ? source_->described(names) : source_->fused(names)};
  if (!source_->sizes_alone()) method.prepare(result, exec);
  return result;
}

Projection LayerWeights::projection(const std::vector<std::string>& modules, const Exec& exec) const {
  return projection(modules, linear_method(config().form_of(full(modules.front())), setting_.rounding), exec);
}

MlpWeights LayerWeights::mlp_weights(const std::string& module, const Exec& exec) const {
  return {projection({module + ".gate_proj", module + ".up_proj"}, exec), projection({module + ".down_proj"}, exec)};
}

MlpWeights LayerWeights::expert_weights(const std::string& module, const Exec& exec) const {
  const auto load = [&](const std::vector<std::string>& modules) {
    const LinearMethod& stored = linear_method(config().form_of(full(modules.front())), setting_.rounding);
    const LinearMethod* const method = backend_->accepts(stored);
    if (method == nullptr)
      throw Error(ErrorCode::unsupported, "", "",
                  "module '" + full(modules.front()) + "' is " + std::string(stored.name) + ", which the experts' backend, " +
                      std::string(backend_->name) + ", does not multiply");
    return projection(modules, *method, exec);
  };
  return {load({module + ".gate_proj", module + ".up_proj"}), load({module + ".down_proj"})};
}

Tensor LayerWeights::norm(const char* name) const {
  const Tensor weight = source_->get(full(name + std::string(".weight")));
  if (setting_.rounding == Rounding::bf16) return weight;
  return source_->sizes_alone() ? without_memory(DType::f32, weight.shape()) : widened(weight);
}

IndexerWeights LayerWeights::indexer_weights(const Exec& exec) const {
  const auto in_f32 = [&](const std::string& name) {
    const Tensor values = source_->get(full("self_attn.indexer." + name));
    return source_->sizes_alone() ? without_memory(DType::f32, values.shape()) : widened(values);
  };
  return {projection({"self_attn.indexer.wq_b"}, exec), projection({"self_attn.indexer.wk"}, exec), in_f32("k_norm.weight"),
          in_f32("k_norm.bias"), source_->get(full("self_attn.indexer.weights_proj.weight"))};
}

LayerWeights::LayerWeights(const WeightSource& source, const LayerSetting& setting, const Exec& exec)
    : source_(&source), setting_(setting) {
  check_setting(source.config(), setting);
  source.check_layer(setting.layer);
  input_layernorm = norm("input_layernorm");
  post_attention_layernorm = norm("post_attention_layernorm");
  kv_a_layernorm = norm("self_attn.kv_a_layernorm");
  if (config().q_lora_rank > 0) {
    q_a_layernorm = norm("self_attn.q_a_layernorm");
    fused_qkv_a = projection({"self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"}, exec);
    q_b = projection({"self_attn.q_b_proj"}, exec);
  } else {
    q_proj = projection({"self_attn.q_proj"}, exec);
    kv_a = projection({"self_attn.kv_a_proj_with_mqa"}, exec);
  }
  if (config().sparse()) indexer = indexer_weights(exec);
  absorb = absorb_weights(source, full("self_attn.kv_b_proj"), setting.rounding, exec);
  o = projection({"self_attn.o_proj"}, exec);
  if (!config().is_moe_layer(setting.layer)) {
    mlp = mlp_weights("mlp", exec);
    return;
  }
  backend_ = &choose_experts(linear_method(config().form_of(full("mlp.experts.0.gate_proj")), setting.rounding), setting);
  gate = projection({"mlp.gate"}, exec);
  const Tensor bias = source.get(full("mlp.gate.e_score_correction_bias"));
  correction_bias = source.sizes_alone() ? without_memory(DType::f32, bias.shape()) : widened(bias);
  if (config().n_shared_experts > 0 && !setting.fused_shared) shared = mlp_weights("mlp.shared_experts", exec);
}

void LayerWeights::touch(std::span<const std::int64_t> rows_of_expert, const Exec& exec) {
  for (std::int64_t id = 0; id < static_cast<std::int64_t>(rows_of_expert.size()); ++id) {
    if (rows_of_expert[static_cast<std::size_t>(id)] == 0 || experts_.contains(id)) continue;
    const bool is_shared = id == config().n_routed_experts;
    experts_.emplace(id, expert_weights(is_shared ? "mlp.shared_experts" : "mlp.experts." + std::to_string(id), exec));
  }
}

}  // namespace dodona::model
