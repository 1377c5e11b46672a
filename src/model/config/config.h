// The configuration of a DeepSeek V3/R1 model: sizes, routing, rope, quantization.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/quant_config.h"

namespace dodona::model {

/// YaRN scaling of rope (`rope_scaling` of type yarn). Without it rope is plain and the softmax scale uncorrected.
struct YarnConfig {
  double factor = 40, beta_fast = 32, beta_slow = 1;
  double mscale = 1, mscale_all_dim = 0;  ///< an absent mscale_all_dim counts as 0: no correction of the softmax scale
  std::int64_t original_max_positions = 4096;
};

/// Field names are those of HuggingFace's `config.json`; counts are elements, heads, layers or experts.
struct ModelConfig {
  std::string name;  ///< the preset, or the folder it was read from: for messages

  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_nextn_predict_layers = 0;  ///< stored as layers num_hidden_layers, ...
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;

  std::int64_t num_attention_heads = 0;
  std::int64_t q_lora_rank = 0;  ///< 0: no low-rank q; q_proj replaces q_a_proj and q_b_proj
  std::int64_t kv_lora_rank = 0;
  std::int64_t qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;

  /// The indexer of sparse attention (V3.2); index_topk 0: there is none, and every token is attended to.
  std::int64_t index_n_heads = 0, index_head_dim = 0, index_topk = 0;

  std::int64_t intermediate_size = 0;      ///< of the dense layers
  std::int64_t moe_intermediate_size = 0;  ///< of one expert
  std::int64_t n_routed_experts = 0;       ///< 0: every layer is dense
  std::int64_t n_shared_experts = 0;       ///< one MLP of n_shared_experts * moe_intermediate_size
  std::int64_t num_experts_per_tok = 0;
  std::int64_t n_group = 1, topk_group = 1;
  std::int64_t first_k_dense_replace = 0, moe_layer_freq = 1;
  double routed_scaling_factor = 1;
  bool norm_topk_prob = true;
  std::string scoring_func = "sigmoid";  ///< what makes weights of the router's logits: sigmoid, or softmax (V2)
  std::string topk_method = "noaux_tc";  ///< noaux_tc: with a correction bias; greedy, group_limited_greedy (V2): without

  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  std::optional<YarnConfig> yarn;

  QuantConfig quant;

  std::int64_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  std::int64_t latent_dim() const { return kv_lora_rank + qk_rope_head_dim; }                       ///< a row of the KV cache: 576
  std::int64_t qkv_a_rows() const { return q_lora_rank + latent_dim(); }                            ///< fused_qkv_a_proj_with_mqa: 2112
  std::int64_t q_rows() const { return num_attention_heads * qk_head_dim(); }                       ///< q_b_proj: 24576
  std::int64_t kv_b_rows() const { return num_attention_heads * (qk_nope_head_dim + v_head_dim); }  ///< kv_b_proj: 32768
  std::int64_t o_columns() const { return num_attention_heads * v_head_dim; }                       ///< o_proj: 16384
  std::int64_t shared_intermediate_size() const { return n_shared_experts * moe_intermediate_size; }

  bool sparse() const { return index_topk > 0; }
  bool has_correction_bias() const { return topk_method == "noaux_tc"; }
  /// As V2's routers do.
  bool routes_by_softmax() const { return scoring_func == "softmax"; }

  /// Layers 0 ... num_hidden_layers - 1 of the model and, after them, the NextN layers, which are always MoE where there are experts.
  std::int64_t total_layers() const { return num_hidden_layers + num_nextn_predict_layers; }
  bool is_nextn_layer(std::int64_t layer) const { return layer >= num_hidden_layers; }
  bool is_moe_layer(std::int64_t layer) const;
  /// Throws Error (bad_value) unless 0 <= layer < total_layers(): `layer 62 is out of range: r1-nvfp4 has layers 0 to 61`.
  void check_layer(std::int64_t layer) const;

  /// How the linear module ("model.layers.3.self_attn.o_proj") is stored.
  WeightForm form_of(std::string_view module) const;

  /// qk_head_dim^-0.5 * g^2, g = 0.1 * mscale_all_dim * ln(factor) + 1 under YaRN with factor > 1, else 1. 0.1352337788608801 for R1.
  /// Source: sglang `DeepseekV2AttentionMLA` (`yarn_get_mscale`).
  double softmax_scale() const;

  /// Throws Error (bad_value) naming `name`, the fields and their values when they contradict each other: sizes not positive or
  /// absurd, an odd rope dimension, experts that do not divide into groups, more experts chosen than the chosen groups hold, NVFP4 rows
  /// that are no multiple of the group, ...
  void validate() const;
};

/// `r1-nvfp4`: the released DeepSeek-R1-0528-NVFP4-v2: MLPs, experts and o_proj in NVFP4; q_a, q_b, kv_a, kv_b, router, lm_head and layer
/// 61 in bf16. `r1-nvfp4-tables`: the tables of the execution document taken literally: every linear of layers 0 to 60 in NVFP4, dense
/// MLPs of 2 x 2048. `tiny`: the same structure with three layers and 16 experts, in NVFP4 like r1-nvfp4; runs in milliseconds.
/// `deepseek_v32`: DeepSeek-V3.2's sizes, sparse attention among them, in NVFP4 like r1-nvfp4 with an indexer in bf16; `tiny-v32`: tiny
/// with an indexer. `r1`, `v3`, `v3.2`: the releases, in DeepSeek's own blocks of fp8; `tiny-fp8`: tiny with a rank of 256 for q, likewise.
/// `kimi-k2`: Kimi-K2's, 384 experts in one group. `v2`, `v2-lite`: in bf16, without (lite) low-rank q; their routers score by softmax and
/// have no correction bias. Throws Error (bad_option) naming the known ones.
ModelConfig preset(std::string_view name);
const std::vector<std::string>& preset_names();

/// `config` quantized by that scheme throughout: every linear module but router, lm_head, eh_proj and, where the scheme's kernels have no
/// place for them, the indexer's.
ModelConfig with_scheme(ModelConfig config, const QuantScheme& scheme);

/// Reads `config.json` in `folder` and, beside it,
/// `hf_quant_config.json` if there is one; the quantization may also be embedded as `quantization_config`, with `exclude_modules` or
/// `ignore`, and the group size at top level or inside `config_groups`. Throws Error: bad_file for unreadable or mistyped files,
/// bad_value for contradictions (also between the two quantization configs), unsupported for models and quantizations that this library
/// does not run (other architectures, other methods than those of quant_schemes(), tied embeddings...).
ModelConfig load_config(const std::string& folder);

/// Where ModelOpt's quantization is written: in a file of its own, or in `config.json` in the flat spelling. All others are in the latter.
enum class QuantSpelling { separate, flat };

/// The texts of `config.json` and `hf_quant_config.json` that load_config reads back as `config`. The second, of the separate spelling, is
/// empty but for NVFP4.
std::string config_json(const ModelConfig& config, QuantSpelling spelling = QuantSpelling::separate);
std::string hf_quant_config_json(const ModelConfig& config);

}  // namespace dodona::model
