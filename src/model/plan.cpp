#include "model/plan.h"

#include <algorithm>
#include <string>

#include "dodona/error.h"
#include "model/decode_layer.h"
#include "model/tensor_list.h"

namespace dodona::model {
namespace {

/// Products that an op does with the rows of its input.
struct Module {
  std::string name;   ///< in the checkpoint, below the layer
  double times = 1;   ///< experts of this size that are read
  double tokens = 1;  ///< rows that are multiplied with one of them, times `times`
};

class Planner {
 public:
  Planner(const ModelConfig& config, std::int64_t layer, std::span<const std::int64_t> lengths, bool fused_shared)
      : config_(config),
        layer_(layer),
        lengths_(lengths),
        batch_(static_cast<double>(lengths.size())),
        fused_shared_(fused_shared),
        shown_(decode_book(config, layer, 0, fused_shared)),
        known_(decode_book(config, layer, static_cast<std::int64_t>(lengths.size()), fused_shared)) {}

  Plan run() {
    attention();
    if (config_.is_moe_layer(layer_)) {
      moe();
    } else {
      op(Part::mlp_dense, "self.post_attention_layernorm()");
      mlp(Part::mlp_dense, "mlp", 1);
    }
    for (const OpRecord& record : plan_.ops) plan_.weight_bytes += record.work.weight_bytes;
    for (const TensorInfo& tensor : layer_tensors(config_, layer_)) plan_.layer_weight_bytes += static_cast<double>(tensor.bytes());
    for (const std::int64_t length : lengths_) {
      const std::int64_t pages = (length + PagedKvCache::page_size - 1) / PagedKvCache::page_size;
      plan_.cache_bytes += 2.0 * static_cast<double>(pages * PagedKvCache::page_size) * static_cast<double>(config_.latent_dim());
    }
    return std::move(plan_);
  }

 private:
  static double elements(const std::vector<BookShape>& shapes) {
    double sum = 0;
    for (const BookShape& shape : shapes) {
      double product = 1;
      for (const std::int64_t size : shape.shape) product *= static_cast<double>(std::max<std::int64_t>(size, 0));
      sum += product;
    }
    return sum;
  }

  double weight_bytes(const std::string& module) const {
    double bytes = 0;
    for (const char* suffix : {".weight", ".weight_scale"})
      if (const auto info = find_tensor_info(config_, layer_prefix(layer_) + module + suffix)) bytes += static_cast<double>(info->bytes());
    return bytes;
  }

  OpRecord& op(Part part, const char* name, const char* note = "", const std::vector<Module>& modules = {}) {
    const BookEntry& entry = known_.at(part, name, note);
    OpRecord record;
    record.op = name;
    record.note = note;
    record.shapes = shapes_text(shown_.at(part, name, note));
    record.kernels = entry.kernel;
    record.work.bytes = 2 * (elements(entry.inputs) + elements(entry.outputs));
    for (const Module& module : modules) {
      const auto size = find_linear(config_, layer_prefix(layer_) + module.name);
      if (!size) continue;
      record.work.weight_bytes += module.times * weight_bytes(module.name);
      const double operations = 2.0 * module.tokens * static_cast<double>(size->rows) * static_cast<double>(size->columns);
      (config_.is_nvfp4(layer_prefix(layer_) + module.name) ? record.work.int8_ops : record.work.flops) += operations;
    }
    record.work.bytes += record.work.weight_bytes;
    plan_.ops.push_back(record);
    return plan_.ops.back();
  }

  OpRecord& linear(Part part, const char* name, const std::vector<const char*>& modules) {
    std::vector<Module> list;
    list.reserve(modules.size());
    for (const char* module : modules) list.push_back({module, 1, batch_});
    return op(part, name, "", list);
  }

  void absorbed(const char* note, std::int64_t rows) {
    OpRecord& record = op(Part::attention, "bmm_fp8()", note);
    // The book counts the weight among the inputs.
    const double weights = static_cast<double>(config_.num_attention_heads * rows) * static_cast<double>(config_.kv_lora_rank);
    record.work.weight_bytes = (record.kernels == "bmm_fp8" ? 1 : 2) * weights;
    if (record.kernels == "bmm_fp8") record.work.bytes -= weights;
    record.work.flops = 2 * batch_ * weights;
  }

  void attention() {
    constexpr Part part = Part::attention;
    OpRecord& norm = op(part, "self.input_layernorm()");
    if (layer_ == 0 || config_.is_nextn_layer(layer_)) norm.kernels = "rmsnorm";  // no residual to add yet
    if (config_.q_lora_rank > 0) {
      linear(part, "self.fused_qkv_a_proj_with_mqa()", {"self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"});
      op(part, "self.q_a_layernorm()");
      linear(part, "self.q_b_proj()", {"self_attn.q_b_proj"});
    } else {
      linear(part, "self.q_proj()", {"self_attn.q_proj"});
      linear(part, "self.kv_a_proj_with_mqa()", {"self_attn.kv_a_proj_with_mqa"});
    }
    op(part, "self.kv_a_layernorm()");
    absorbed("q_nope * w_kc", config_.qk_nope_head_dim);
    op(part, "self.rotary_emb()");
    op(Part::kv_cache, "set_mla_kv_buffer()");
    double keys = 0;
    for (const std::int64_t length : lengths_) keys += static_cast<double>(length);
    OpRecord& core = op(part, "self.attn_mqa()");
    const auto row = static_cast<double>(config_.latent_dim()), latent = static_cast<double>(config_.kv_lora_rank);
    core.work.bytes += 2 * keys * row;
    core.work.flops = 2 * keys * static_cast<double>(config_.num_attention_heads) * (row + latent);
    absorbed("attn_output * w_vc", config_.v_head_dim);
    linear(part, "self.o_proj()", {"self_attn.o_proj"});
  }

  void mlp(Part part, const std::string& module, double times) {
    op(part, "self.gate_up_proj()", "", {{module + ".gate_proj", times, batch_}, {module + ".up_proj", times, batch_}});
    op(part, "self.act_fn()");
    op(part, "self.down_proj()", "", {{module + ".down_proj", times, batch_}});
  }

  void moe() {
    op(Part::mlp_moe, "self.post_attention_layernorm()");
    linear(Part::mlp_moe, "self.gate()", {"mlp.gate"});
    op(Part::mlp_moe, "self.topk()");
    if (config_.n_shared_experts > 0 && !fused_shared_) mlp(Part::shared_experts, "mlp.shared_experts", 1);
    const double rows = batch_ * static_cast<double>(config_.num_experts_per_tok + (fused_shared_ ? 1 : 0));
    const double read = std::min(batch_ * static_cast<double>(config_.num_experts_per_tok), static_cast<double>(config_.n_routed_experts)) +
                        (fused_shared_ ? 1 : 0);
    const std::vector<Module> gate_up{{"mlp.experts.0.gate_proj", read, rows}, {"mlp.experts.0.up_proj", read, rows}};
    const std::vector<Module> down{{"mlp.experts.0.down_proj", read, rows}};
    if (!config_.is_nvfp4(layer_prefix(layer_) + "mlp.experts.0.gate_proj")) {
      std::vector<Module> all = gate_up;
      all.push_back(down.front());
      op(Part::mlp_moe, "self.experts()", "", all);
      return;
    }
    constexpr Part part = Part::experts_cutlass;
    op(part, "prepare_moe_input");
    op(part, "shuffle_rows");
    op(part, "scaled_fp4_experts_quant", "gate_up");
    op(part, "cutlass_fp4_group_mm", "gate_up", gate_up);
    op(part, "silu_and_mul");
    op(part, "scaled_fp4_experts_quant", "down");
    op(part, "cutlass_fp4_group_mm", "down", down);
    op(part, "apply_shuffle_mul_sum");
  }

  const ModelConfig& config_;
  std::int64_t layer_;
  std::span<const std::int64_t> lengths_;
  double batch_;
  bool fused_shared_;
  ShapeBook shown_, known_;
  Plan plan_;
};

}  // namespace

Plan plan_decode(const ModelConfig& config, std::int64_t layer, std::span<const std::int64_t> lengths, bool fused_shared) {
  config.check_layer(layer);
  if (lengths.empty()) throw Error(ErrorCode::bad_value, "", "batch", "is 0, expected at least one request");
  for (const std::int64_t length : lengths)
    if (length < 1 || length > config.max_position_embeddings)
      throw Error(ErrorCode::bad_value, "", "kv_len",
                  "is " + std::to_string(length) + ", expected 1 to " + std::to_string(config.max_position_embeddings) +
                      " (max_position_embeddings)");
  return Planner(config, layer, lengths, fused_shared).run();
}

}  // namespace dodona::model
