#include "model/layer_weights.h"

#include <cmath>
#include <vector>

#include "core/threads.h"
#include "dodona/error.h"
#include "model/per_tensor_fp8.h"
#include "model/tensor_list.h"
#include "model/values.h"

namespace dodona::model {
namespace {

/// The weight as one dense matrix of `type`.
Tensor dense(const Linear& linear, Rounding rounding, int threads) {
  if (!linear.is_nvfp4()) return linear.bf16;
  if (rounding == Rounding::bf16) return dequantize(linear, threads);
  Tensor out = widened(dequantize_unscaled(linear, threads));
  for (std::int64_t i = 0; i < out.elements(); ++i) out.as<float>()[i] *= linear.nvfp4.weight_scale_2;
  return out;
}

AbsorbWeights absorb_weights(const ModelConfig& config, const Linear& kv_b, Rounding rounding, int threads) {
  const std::int64_t heads = config.num_attention_heads, nope = config.qk_nope_head_dim, v = config.v_head_dim,
                     latent = config.kv_lora_rank;
  AbsorbWeights result;
  Tensor per_head = dense(kv_b, rounding, threads);
  if (kv_b.is_nvfp4() && rounding == Rounding::bf16) {
    const Fp8Tensor codes = per_tensor_fp8(per_head, threads);
    result.scale = codes.scale;
    per_head = codes.values;
  }
  per_head = per_head.reshape({heads, nope + v, latent});
  // Both with k contiguous for each column, as upstream stores them: [Nh, Lkv, Dn] and [Nh, Dv, Lkv] in memory.
  result.w_kc = per_head.slice(1, 0, nope).transpose(1, 2).clone().transpose(1, 2);
  result.w_vc = per_head.slice(1, nope, nope + v).transpose(1, 2);
  if (result.is_fp8()) result.w_vc = result.w_vc.transpose(1, 2).clone().transpose(1, 2);
  return result;
}

}  // namespace

std::int64_t AbsorbWeights::bytes() const {
  return bytes_for(w_kc.dtype(), w_kc.elements()) + bytes_for(w_vc.dtype(), w_vc.elements());
}

Projection LayerWeights::projection(std::initializer_list<const char*> modules, const Exec& exec, bool routed) const {
  std::vector<std::string> names;
  names.reserve(modules.size());
  for (const char* module : modules) names.push_back(layer_prefix(layer_) + module);
  Projection result(names.size() == 1 ? source_->linear(names.front()) : source_->fused(names), rounding_, routed);
  result.prepare(exec);
  return result;
}

MlpWeights LayerWeights::load_mlp(const std::string& module, const Exec& exec, bool routed) const {
  MlpWeights result;
  result.gate_up = projection({(module + ".gate_proj").c_str(), (module + ".up_proj").c_str()}, exec, routed);
  result.down = projection({(module + ".down_proj").c_str()}, exec, routed);
  return result;
}

Tensor LayerWeights::norm(const char* name) const {
  const Tensor weight = source_->get(layer_prefix(layer_) + name + ".weight");
  return rounding_ == Rounding::bf16 ? weight : widened(weight);
}

LayerWeights::LayerWeights(const WeightSource& source, std::int64_t layer, Rounding rounding, bool fused_shared, const Exec& exec)
    : source_(&source),
      layer_(layer),
      rounding_(rounding),
      fused_shared_(fused_shared),
      moe_((config().check_layer(layer), config().is_moe_layer(layer))) {
  source.check_layer(layer);
  if (fused_shared && !moe_)
    throw Error(ErrorCode::bad_option, "", "fused shared expert", "is asked for, but layer " + std::to_string(layer) + " is dense");
  if (fused_shared && config().n_shared_experts != 1)
    throw Error(ErrorCode::bad_option, "", "fused shared expert",
                "needs exactly one shared expert, " + config().name + " has " + std::to_string(config().n_shared_experts));
  if (moe_ && !config().norm_topk_prob)
    throw Error(ErrorCode::unsupported, "", "norm_topk_prob", "is false, but moe_fused_gate always renormalizes the weights");
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
  absorb = absorb_weights(config(), source.linear(layer_prefix(layer) + "self_attn.kv_b_proj"), rounding, exec.threads);
  o = projection({"self_attn.o_proj"}, exec);
  if (!moe_) {
    mlp = load_mlp("mlp", exec);
    return;
  }
  const std::string moe = layer_prefix(layer) + "mlp.";
  gate = projection({"mlp.gate"}, exec);
  correction_bias = widened(source.get(moe + "gate.e_score_correction_bias"));
  experts_nvfp4_ = config().is_nvfp4(moe + "experts.0.gate_proj");
  if (config().n_shared_experts > 0 && !fused_shared) shared = load_mlp("mlp.shared_experts", exec);
}

std::int64_t LayerWeights::experts() const {
  return config().n_routed_experts + (fused_shared_ ? 1 : 0);
}

void LayerWeights::touch(std::span<const std::int32_t> ids, const Exec& exec) {
  for (const std::int32_t id : ids) {
    if (experts_.contains(id)) continue;
    const bool is_shared = id == config().n_routed_experts;
    experts_.emplace(id, load_mlp(is_shared ? "mlp.shared_experts" : "mlp.experts." + std::to_string(id), exec, true));
  }
}

}  // namespace dodona::model
