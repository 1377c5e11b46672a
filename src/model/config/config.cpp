#include "model/config/config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/fixed_math.h"
#include "dodona/error.h"

namespace dodona::model {
namespace {

/// Above every model there is, and small enough that products of three sizes stay below 2^62.
constexpr std::int64_t largest_size = 1 << 20;

std::string number(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

/// Layer number of "model.layers.N...", or -1.
std::int64_t layer_of(std::string_view module) {
  constexpr std::string_view prefix = "model.layers.";
  if (!module.starts_with(prefix)) return -1;
  return std::strtoll(std::string(module.substr(prefix.size(), 12)).c_str(), nullptr, 10);
}

class Validator {
 public:
  explicit Validator(const ModelConfig& config) : config_(config) {}

  [[noreturn]] void fail(const std::string& message) const { throw Error(ErrorCode::bad_value, "", "", config_.name + ": " + message); }

  void in_range(const char* field, std::int64_t value, std::int64_t least, std::int64_t most = largest_size) const {
    if (value < least || value > most)
      fail(std::string(field) + " is " + std::to_string(value) + ", expected " + std::to_string(least) +
           (most > least ? " to " + std::to_string(most) : ""));
  }
  void positive(const char* field, double value) const {
    if (!(value > 0) || !std::isfinite(value)) fail(std::string(field) + " is " + number(value) + ", expected a positive number");
  }
  void multiple(const char* field, std::int64_t value, std::int64_t of, const std::string& why) const {
    if (value % of != 0)
      fail(std::string(field) + " is " + std::to_string(value) + ", expected a multiple of " + std::to_string(of) + " (" + why + ")");
  }
  void at_most(const char* field, std::int64_t value, const char* other, std::int64_t most) const {
    if (value > most)
      fail(std::string(field) + " is " + std::to_string(value) + ", which is more than " + other + ", " + std::to_string(most));
  }

 private:
  const ModelConfig& config_;
};

void validate_attention(const ModelConfig& c, const Validator& v) {
  v.in_range("num_attention_heads", c.num_attention_heads, 1);
  v.in_range("q_lora_rank", c.q_lora_rank, 0);
  v.in_range("kv_lora_rank", c.kv_lora_rank, 1);
  v.in_range("qk_nope_head_dim", c.qk_nope_head_dim, 1);
  v.in_range("qk_rope_head_dim", c.qk_rope_head_dim, 2);
  v.in_range("v_head_dim", c.v_head_dim, 1);
  v.multiple("qk_rope_head_dim", c.qk_rope_head_dim, 2, "rope turns pairs");
  if (c.sparse()) {
    v.in_range("index_topk", c.index_topk, 2048, 2048);
    v.in_range("index_head_dim", c.index_head_dim, 128, 128);
    v.in_range("index_n_heads", c.index_n_heads, 8);
    v.multiple("index_n_heads", c.index_n_heads, 8, "heads of the indexer's scores");
    v.in_range("q_lora_rank", c.q_lora_rank, 1);
    v.at_most("qk_rope_head_dim", c.qk_rope_head_dim, "index_head_dim", c.index_head_dim);
  }
  v.in_range("num_attention_heads * (qk_nope_head_dim + v_head_dim)", c.kv_b_rows(), 1, std::int64_t{1} << 24);
  v.in_range("num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)", c.q_rows(), 1, std::int64_t{1} << 24);
}

void validate_experts(const ModelConfig& c, const Validator& v) {
  v.in_range("n_routed_experts", c.n_routed_experts, 0, 1 << 16);
  if (c.n_routed_experts == 0) return;
  v.in_range("moe_intermediate_size", c.moe_intermediate_size, 1);
  v.in_range("n_shared_experts", c.n_shared_experts, 0, 1 << 10);
  v.in_range("num_experts_per_tok", c.num_experts_per_tok, 1);
  v.in_range("n_group", c.n_group, 1);
  v.in_range("topk_group", c.topk_group, 1);
  v.in_range("moe_layer_freq", c.moe_layer_freq, 1);
  v.multiple("n_routed_experts", c.n_routed_experts, c.n_group, "n_group");
  v.at_most("topk_group", c.topk_group, "n_group", c.n_group);
  v.at_most("num_experts_per_tok", c.num_experts_per_tok, "the chosen groups hold (topk_group * n_routed_experts / n_group)",
            c.topk_group * (c.n_routed_experts / c.n_group));
  v.positive("routed_scaling_factor", c.routed_scaling_factor);
  // HuggingFace's greedy choice looks at no groups, upstream's takes them whatever the method is called.
  if (c.topk_method == "greedy" && c.topk_group != c.n_group)
    v.fail("topk_method is 'greedy', which has no groups, but topk_group is " + std::to_string(c.topk_group) + " of n_group " +
           std::to_string(c.n_group) + " (expected group_limited_greedy, or all groups)");
  // Of upstream's routers with a correction bias moe_fused_gate always divides by the weights' sum; which of them runs hangs on sizes.
  if (!c.norm_topk_prob && c.has_correction_bias())
    throw Error(ErrorCode::unsupported, "", "norm_topk_prob",
                "is false in " + c.name +
                    ", expected true: upstream's moe_fused_gate, the router with a correction bias (noaux_tc), divides " +
                    "the weights by their sum in any case");
}

void validate_rope(const ModelConfig& c, const Validator& v) {
  v.positive("rope_theta", c.rope_theta);
  if (c.rope_theta <= 1) v.fail("rope_theta is " + number(c.rope_theta) + ", expected more than 1");
  v.in_range("max_position_embeddings", c.max_position_embeddings, 1, std::int64_t{1} << 24);
  if (!c.yarn) return;
  const YarnConfig& y = *c.yarn;
  v.positive("rope scaling factor", y.factor);
  if (y.factor < 1) v.fail("rope scaling factor is " + number(y.factor) + ", expected 1 or more");
  v.positive("beta_fast", y.beta_fast);
  v.positive("beta_slow", y.beta_slow);
  if (y.beta_fast < y.beta_slow) v.fail("beta_fast is " + number(y.beta_fast) + ", less than beta_slow, " + number(y.beta_slow));
  if (!(y.mscale >= 0) || !std::isfinite(y.mscale) || !(y.mscale_all_dim >= 0) || !std::isfinite(y.mscale_all_dim))
    v.fail("mscale and mscale_all_dim must be finite and not negative");
  v.in_range("original_max_position_embeddings", y.original_max_positions, 1, std::int64_t{1} << 24);
  const double covered = y.factor * static_cast<double>(y.original_max_positions);
  if (static_cast<double>(c.max_position_embeddings) > covered)
    v.fail("max_position_embeddings is " + std::to_string(c.max_position_embeddings) +
           ", more than YaRN covers (factor * original_max_position_embeddings = " + number(covered) + ")");
}

/// A matrix of a layer: its sizes by name, and what is stacked upon it.
struct Matrix {
  const char* rows_field;
  std::int64_t rows;
  const char* columns_field;
  std::int64_t columns;
  std::string module;
  bool stacked = false;  ///< another module lies below it in one product
};

std::vector<Matrix> matrices_of(const ModelConfig& c, std::int64_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer), attention = prefix + ".self_attn.";
  std::vector<Matrix> matrices{
      {"kv_lora_rank + qk_rope_head_dim", c.latent_dim(), "hidden_size", c.hidden_size, attention + "kv_a_proj_with_mqa"},
      {"num_attention_heads * (qk_nope_head_dim + v_head_dim)", c.kv_b_rows(), "kv_lora_rank", c.kv_lora_rank, attention + "kv_b_proj"},
      {"hidden_size", c.hidden_size, "num_attention_heads * v_head_dim", c.o_columns(), attention + "o_proj"}};
  if (c.q_lora_rank > 0) {
    matrices.push_back({"q_lora_rank", c.q_lora_rank, "hidden_size", c.hidden_size, attention + "q_a_proj", true});
    matrices.push_back({"num_attention_heads * qk_head_dim", c.q_rows(), "q_lora_rank", c.q_lora_rank, attention + "q_b_proj"});
  }
  if (c.sparse()) {
    matrices.push_back(
        {"index_n_heads * index_head_dim", c.index_n_heads * c.index_head_dim, "q_lora_rank", c.q_lora_rank, attention + "indexer.wq_b"});
    matrices.push_back({"index_head_dim", c.index_head_dim, "hidden_size", c.hidden_size, attention + "indexer.wk"});
  }
  const auto mlp = [&](const std::string& module, const char* field, std::int64_t size) {
    matrices.push_back({field, size, "hidden_size", c.hidden_size, prefix + module + "gate_proj", true});
    matrices.push_back({"hidden_size", c.hidden_size, field, size, prefix + module + "down_proj"});
  };
  if (!c.is_moe_layer(layer)) {
    mlp(".mlp.", "intermediate_size", c.intermediate_size);
    return matrices;
  }
  mlp(".mlp.experts.0.", "moe_intermediate_size", c.moe_intermediate_size);
  if (c.n_shared_experts > 0) mlp(".mlp.shared_experts.", "n_shared_experts * moe_intermediate_size", c.shared_intermediate_size());
  return matrices;
}

void validate_quant(const ModelConfig& c, const Validator& v) {
  if (c.quant.algo == QuantAlgo::none && c.quant.forms.empty()) return;
  if (c.quant.algo == QuantAlgo::nvfp4 && c.quant.group_size != 16)
    v.fail("group_size is " + std::to_string(c.quant.group_size) + ", expected 16 (NVFP4)");
  // Every matrix that is quantized must divide as its form asks; modules that stay bf16 need not.
  for (std::int64_t layer = 0; layer < c.total_layers(); ++layer)
    for (const Matrix& m : matrices_of(c, layer)) {
      const WeightForm form = c.form_of(m.module);
      const FormLimits limits = limits_of(form);
      const std::string why = "of " + std::string(name(form)) + ", in which " + m.module + " is stored";
      v.multiple(m.columns_field, m.columns, limits.columns, why);
      v.multiple(m.rows_field, m.rows, m.stacked ? std::max(limits.rows, limits.stacked) : limits.rows, why);
    }
}

/// Router, head and what else no scheme quantizes.
bool stays_wide(std::string_view module) {
  for (const char* end : {"lm_head", ".mlp.gate", ".eh_proj", ".indexer.weights_proj"})
    if (module.ends_with(end)) return true;
  return false;
}

}  // namespace

bool ModelConfig::is_moe_layer(std::int64_t layer) const {
  if (n_routed_experts == 0) return false;
  return is_nextn_layer(layer) || (layer >= first_k_dense_replace && layer % moe_layer_freq == 0);
}

void ModelConfig::check_layer(std::int64_t layer) const {
  if (layer < 0 || layer >= total_layers())
    throw Error(ErrorCode::bad_value, "", "",
                "layer " + std::to_string(layer) + " is out of range: " + name + " has layers 0 to " + std::to_string(total_layers() - 1));
}

WeightForm ModelConfig::form_of(std::string_view module) const {
  for (const FormOfModules& some : quant.forms)
    if (glob_matches(some.pattern, module)) return some.form;
  const QuantScheme& scheme = scheme_of(quant.algo);
  const bool quantized = (scheme.nextn || layer_of(module) < num_hidden_layers) && (scheme.lists_exceptions || !stays_wide(module));
  if (!quantized || quant.excludes(module)) return WeightForm::bf16;
  return module.find(".mlp.experts.") == std::string_view::npos ? scheme.linears : scheme.experts;
}

double ModelConfig::softmax_scale() const {
  const double scale = 1 / std::sqrt(static_cast<double>(qk_head_dim()));
  if (!yarn || yarn->factor <= 1) return scale;
  const double g = 0.1 * yarn->mscale_all_dim * fixed::log(yarn->factor) + 1;
  return scale * g * g;
}

void ModelConfig::validate() const {
  const Validator v(*this);
  v.in_range("hidden_size", hidden_size, 1);
  v.in_range("num_hidden_layers", num_hidden_layers, 1, 10'000);
  v.in_range("num_nextn_predict_layers", num_nextn_predict_layers, 0, 100);
  v.in_range("vocab_size", vocab_size, 1, std::int64_t{1} << 24);
  v.in_range("intermediate_size", intermediate_size, 1);
  v.in_range("first_k_dense_replace", first_k_dense_replace, 0, num_hidden_layers);
  v.positive("rms_norm_eps", rms_norm_eps);
  validate_attention(*this, v);
  validate_experts(*this, v);
  validate_rope(*this, v);
  validate_quant(*this, v);
}

}  // namespace dodona::model
