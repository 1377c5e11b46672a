#include "model/layer/layer_weights.h"

#include <algorithm>
#include <cstring>

#include "dodona/error.h"
#include "io/stopwatch.h"
#include "model/layer/experts/experts.h"
#include "model/layer/kernel_use.h"
#include "model/layer/ranks.h"
#include "model/layer/values.h"
#include "model/weights/tensor_list.h"
#include "model/weights/without_memory.h"

namespace dodona::model {
namespace {

void check_setting(const ModelConfig& config, const LayerSetting& setting) {
  config.check_layer(setting.layer);
  const bool moe = config.is_moe_layer(setting.layer);
  if (setting.fused_shared && !moe)
    throw Error(ErrorCode::bad_option, "", "fused_shared_expert", "is asked for, but layer " + std::to_string(setting.layer) + " is dense");
  if (setting.fused_shared && config.n_shared_experts != 1)
    throw Error(ErrorCode::bad_option, "", "fused_shared_expert",
                "needs exactly one shared expert, " + config.name + " has " + std::to_string(config.n_shared_experts));
  if (config.sparse() && setting.rounding != Rounding::bf16)
    throw Error(ErrorCode::unsupported, "", "rounding", "is off, but the indexer of sparse attention quantizes");
  if (moe && setting.fused_shared && !config.has_correction_bias())
    throw Error(ErrorCode::unsupported, "", "fused shared expert", "has no place in the router of " + config.name);
}

}  // namespace

std::string LayerWeights::full(const std::string& module) const {
  return layer_prefix(setting_.layer) + module;
}

Projection LayerWeights::projection(const std::vector<std::string>& modules, const LinearMethod& method, const Exec& exec) const {
  std::vector<std::string> names;
  names.reserve(modules.size());
  for (const std::string& module : modules) names.push_back(full(module));
  Projection result{.method = &method, .weight = source_->sizes_alone() ? source_->described(names) : source_->fused(names)};
  if (!source_->sizes_alone()) method.prepare(result, exec);
  return result;
}

Projection LayerWeights::projection(std::string_view op, const std::vector<std::string>& modules, const Exec& exec) const {
  std::int64_t rows = 0;
  for (const std::string& module : modules)
    if (const auto size = find_linear(source_->config(), full(module), source_->shard())) rows += size->rows;
  const WeightForm form = config().form_of(full(modules.front()));
  return projection(modules, linear_method(form, setting_.rounding, rows, used_kernel(setting_, op)), exec);
}

MlpWeights LayerWeights::mlp_weights(const std::string& module, bool of_shared, const Exec& exec) const {
  return {projection(use_name("gate_up_proj", of_shared), {module + ".gate_proj", module + ".up_proj"}, exec),
          projection(use_name("down_proj", of_shared), {module + ".down_proj"}, exec)};
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
  MlpWeights expert{load({module + ".gate_proj", module + ".up_proj"}), load({module + ".down_proj"})};
  if (backend_->pack != nullptr && exec.mode == Mode::fast && !source_->sizes_alone()) backend_->pack(expert, exec);
  return expert;
}

Tensor LayerWeights::norm(const char* name) const {
  Tensor weight = source_->get(full(name + std::string(".weight")));
  if (setting_.rounding == Rounding::bf16) return weight;
  return source_->sizes_alone() ? without_memory(DType::f32, weight.shape()) : widened(weight);
}

IndexerWeights LayerWeights::indexer_weights(const Exec& exec) const {
  const auto in_f32 = [&](const std::string& name) {
    const Tensor values = source_->get(full("self_attn.indexer." + name));
    return source_->sizes_alone() ? without_memory(DType::f32, values.shape()) : widened(values);
  };
  // Of fp8 by DeepGEMM, as upstream on Hopper: of so few columns and so many terms sgl-kernel adds parts in the order in which they are
  // ready, and no two runs have the same bits.
  const std::vector<std::string> wk{"self_attn.indexer.wk"};
  const LinearMethod& of_keys =
      linear_method(config().form_of(full(wk.front())), setting_.rounding, config().index_head_dim, deep_gemm_method.kernel);
  return {projection(std::string_view(), {"self_attn.indexer.wq_b"}, exec), projection(wk, of_keys, exec), in_f32("k_norm.weight"),
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
    fused_qkv_a = projection("fused_qkv_a_proj_with_mqa", {"self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"}, exec);
    q_b = projection("q_b_proj", {"self_attn.q_b_proj"}, exec);
  } else {
    q_proj = projection("q_proj", {"self_attn.q_proj"}, exec);
    kv_a = projection("kv_a_proj_with_mqa", {"self_attn.kv_a_proj_with_mqa"}, exec);
  }
  if (config().sparse()) indexer = indexer_weights(exec);
  absorb = absorb_weights(source, full("self_attn.kv_b_proj"), setting, exec);
  o = projection("o_proj", {"self_attn.o_proj"}, exec);
  if (!config().is_moe_layer(setting.layer)) {
    mlp = mlp_weights("mlp", false, exec);
    return;
  }
  backend_ = &choose_experts(config(), setting);
  if (!source.shard().experts.whole() && !source.sizes_alone()) check_experts_apart(*backend_, setting, source.shard().experts.count);
  gate = projection("gate", {"mlp.gate"}, exec);
  if (config().has_correction_bias()) {
    const Tensor bias = source.get(full("mlp.gate.e_score_correction_bias"));
    correction_bias = source.sizes_alone() ? without_memory(DType::f32, bias.shape()) : widened(bias);
  }
  if (backend_->one_input_scale && !source.sizes_alone()) find_input_scales();
  if (config().n_shared_experts > 0 && !setting.fused_shared) shared = mlp_weights("mlp.shared_experts", true, exec);
}

void LayerWeights::touch_kv_b(const Exec& exec) {
  if (kv_b.defined()) return;
  const io::Stopwatch watch;
  kv_b = projection("kv_b_proj", {"self_attn.kv_b_proj"}, exec);
  touching_seconds_ += watch.seconds();
}

/// One static scale for all experts: the largest, as upstream's loader takes it.
void LayerWeights::find_input_scales() {
  for (std::int64_t e = 0; e < experts(); ++e) {
    const std::string expert = e < config().n_routed_experts ? "mlp.experts." + std::to_string(e) + "." : "mlp.shared_experts.";
    for (const char* module : {"gate_proj", "up_proj"})
      expert_input_scales.gate_up = std::max(expert_input_scales.gate_up, source_->scalar(full(expert + module + ".input_scale")));
    expert_input_scales.down = std::max(expert_input_scales.down, source_->scalar(full(expert + "down_proj.input_scale")));
  }
}

void LayerWeights::touch(std::span<const std::int64_t> rows_of_expert, const Exec& exec) {
  const io::Stopwatch watch;
  std::int64_t loaded = 0;
  for (std::int64_t id = 0; id < static_cast<std::int64_t>(rows_of_expert.size()); ++id) {
    if (rows_of_expert[static_cast<std::size_t>(id)] == 0 || experts_.contains(id)) continue;
    const bool is_shared = id == config().n_routed_experts;
    experts_.emplace(id, expert_weights(is_shared ? "mlp.shared_experts" : "mlp.experts." + std::to_string(id), exec));
    ++loaded;
  }
  if (loaded > 0) touching_seconds_ += watch.seconds();
}

std::int64_t ExpertStack::place(std::int64_t expert) const {
  return std::find(experts.begin(), experts.end(), expert) - experts.begin();
}

const ExpertStack& LayerWeights::stack(Projection MlpWeights::*member, std::span<const std::int64_t> experts) {
  ExpertStack& stack = member == &MlpWeights::gate_up ? gate_up_stack_ : down_stack_;
  const std::size_t before = stack.experts.size();
  for (const std::int64_t id : experts)
    if (stack.place(id) == static_cast<std::int64_t>(stack.experts.size())) stack.experts.push_back(id);
  if (stack.experts.size() == before) return stack;
  std::size_t moved = before;
  const auto needed = static_cast<std::int64_t>(stack.experts.size());
  if (!stack.codes.defined() || stack.codes.size(0) < needed) {
    // Twice the room: experts come one after the other.
    const std::int64_t room = stack.codes.defined() ? std::max(needed, 2 * stack.codes.size(0)) : needed;
    const Projection& any = experts_.at(stack.experts.front()).*member;
    const Dims codes = any.weight.weight.shape(), scales = any.block_scales.shape();
    stack.codes = Tensor::uninitialized(DType::f8_e4m3, {room, codes[0], codes[1]});
    stack.scales = Tensor::uninitialized(DType::f32, {room, scales[0], scales[1]});
    moved = 0;
  }
  for (std::size_t i = moved; i < stack.experts.size(); ++i) {
    Projection& projection = experts_.at(stack.experts[i]).*member;
    const auto move = [i](Tensor& one, const Tensor& all) {
      const auto at = static_cast<std::int64_t>(i);
      const Tensor place = all.slice(0, at, at + 1).reshape(one.shape());
      std::memcpy(place.data(), one.data(), static_cast<std::size_t>(bytes_for(one.dtype(), one.elements())));
      one = place;
    };
    move(projection.weight.weight, stack.codes);
    move(projection.block_scales, stack.scales);
  }
  return stack;
}

}  // namespace dodona::model
