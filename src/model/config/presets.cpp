// The configurations that are built in.
#include <algorithm>
#include <array>

#include "dodona/error.h"
#include "model/config/config.h"

namespace dodona::model {
namespace {

/// DeepSeek-R1-0528's config.json.
ModelConfig r1() {
  ModelConfig c;
  c.hidden_size = 7168;
  c.num_hidden_layers = 61;
  c.num_nextn_predict_layers = 1;
  c.vocab_size = 129280;
  c.max_position_embeddings = 163840;
  c.num_attention_heads = 128;
  c.q_lora_rank = 1536;
  c.kv_lora_rank = 512;
  c.qk_nope_head_dim = 128;
  c.qk_rope_head_dim = 64;
  c.v_head_dim = 128;
  c.intermediate_size = 18432;
  c.moe_intermediate_size = 2048;
  c.n_routed_experts = 256;
  c.n_shared_experts = 1;
  c.num_experts_per_tok = 8;
  c.n_group = 8;
  c.topk_group = 4;
  c.first_k_dense_replace = 3;
  c.moe_layer_freq = 1;
  c.routed_scaling_factor = 2.5;
  c.yarn = YarnConfig{.mscale_all_dim = 1};
  return c;
}

/// What the second release leaves in bf16: of attention everything but o_proj, the router, lm_head, the NextN layer.
std::vector<std::string> excluded_in_v2(const ModelConfig& c) {
  std::vector<std::string> names{"lm_head", "model.layers." + std::to_string(c.num_hidden_layers) + "*"};
  for (std::int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer);
    for (const char* module : {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"}) names.push_back(prefix + ".self_attn." + module);
    if (c.sparse()) names.push_back(prefix + ".self_attn.indexer*");
    if (c.is_moe_layer(layer)) names.push_back(prefix + ".mlp.gate");
  }
  std::sort(names.begin(), names.end());
  return names;
}

void quantize_as_v2(ModelConfig& c) {
  c.quant = {.algo = QuantAlgo::nvfp4, .group_size = 16, .fp8_kv_cache = true, .exclude = excluded_in_v2(c)};
}

ModelConfig r1_nvfp4() {
  ModelConfig c = r1();
  quantize_as_v2(c);
  return c;
}

ModelConfig r1_nvfp4_tables() {
  ModelConfig c = r1();
  c.intermediate_size = 2048;
  c.quant = {.algo = QuantAlgo::nvfp4, .group_size = 16, .fp8_kv_cache = false, .exclude = {"lm_head", "model.layers.61*"}};
  return c;
}

void add_indexer(ModelConfig& c, std::int64_t heads) {
  c.index_n_heads = heads;
  c.index_head_dim = 128;
  c.index_topk = 2048;
}

ModelConfig v32() {
  ModelConfig c = r1();
  add_indexer(c, 64);
  return c;
}

ModelConfig in_blocks(ModelConfig c) {
  c.quant = {.algo = QuantAlgo::fp8_block};
  return c;
}

ModelConfig as_v2(ModelConfig c) {
  quantize_as_v2(c);
  return c;
}

/// DeepSeek-V2's config.json.
ModelConfig v2() {
  ModelConfig c = r1();
  c.hidden_size = 5120;
  c.num_hidden_layers = 60;
  c.num_nextn_predict_layers = 0;
  c.vocab_size = 102400;
  c.intermediate_size = 12288;
  c.moe_intermediate_size = 1536;
  c.n_routed_experts = 160;
  c.n_shared_experts = 2;
  c.num_experts_per_tok = 6;
  c.topk_group = 3;
  c.first_k_dense_replace = 1;
  c.routed_scaling_factor = 16;
  c.norm_topk_prob = false;
  c.scoring_func = "softmax";
  c.topk_method = "group_limited_greedy";
  c.yarn = YarnConfig{.mscale = 0.707, .mscale_all_dim = 0.707};
  return c;
}

/// DeepSeek-V2-Lite's.
ModelConfig v2_lite() {
  ModelConfig c = v2();
  c.hidden_size = 2048;
  c.num_hidden_layers = 27;
  c.num_attention_heads = 16;
  c.q_lora_rank = 0;
  c.intermediate_size = 10944;
  c.moe_intermediate_size = 1408;
  c.n_routed_experts = 64;
  c.n_group = c.topk_group = 1;
  c.routed_scaling_factor = 1;
  c.topk_method = "greedy";
  return c;
}

/// Kimi-K2-Instruct's.
ModelConfig kimi_k2() {
  ModelConfig c = r1();
  c.num_nextn_predict_layers = 0;
  c.vocab_size = 163840;
  c.max_position_embeddings = 131072;
  c.num_attention_heads = 64;
  c.n_routed_experts = 384;
  c.n_group = c.topk_group = 1;
  c.first_k_dense_replace = 1;
  c.routed_scaling_factor = 2.827;
  c.rope_theta = 50000;
  c.yarn = YarnConfig{.factor = 32, .beta_fast = 1, .beta_slow = 1, .mscale_all_dim = 1};
  return in_blocks(c);
}

ModelConfig tiny() {
  ModelConfig c = r1();
  c.hidden_size = 256;
  c.num_hidden_layers = 3;
  c.vocab_size = 512;
  c.num_attention_heads = 4;
  c.q_lora_rank = 192;
  c.intermediate_size = 512;
  c.moe_intermediate_size = 128;
  c.n_routed_experts = 16;
  c.num_experts_per_tok = 4;
  c.n_group = 4;
  c.topk_group = 2;
  c.first_k_dense_replace = 1;
  return c;
}

/// Blocks of 128 rows end where q_a_proj does.
ModelConfig tiny_fp8() {
  ModelConfig c = tiny();
  c.q_lora_rank = 256;
  return in_blocks(c);
}

ModelConfig tiny_v32() {
  ModelConfig c = tiny();
  add_indexer(c, 32);
  return as_v2(c);
}

struct Preset {
  std::string_view name;
  ModelConfig (*make)();
};
constexpr std::array presets{Preset{"r1-nvfp4", r1_nvfp4},
                             Preset{"r1-nvfp4-tables", r1_nvfp4_tables},
                             Preset{"tiny", [] { return as_v2(tiny()); }},
                             Preset{"deepseek_v32", [] { return as_v2(v32()); }},
                             Preset{"tiny-v32", tiny_v32},
                             Preset{"r1", [] { return in_blocks(r1()); }},
                             Preset{"v3", [] { return in_blocks(r1()); }},
                             Preset{"v3.2", [] { return in_blocks(v32()); }},
                             Preset{"kimi-k2", kimi_k2},
                             Preset{"v2", v2},
                             Preset{"v2-lite", v2_lite},
                             Preset{"tiny-fp8", tiny_fp8}};

}  // namespace

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    all.reserve(std::size(presets));
    for (const Preset& each : presets) all.emplace_back(each.name);
    return all;
  }();
  return names;
}

ModelConfig preset(std::string_view name) {
  std::string known;
  for (const Preset& each : presets) {
    known += (known.empty() ? "" : ", ") + std::string(each.name);
    if (each.name != name) continue;
    ModelConfig config = each.make();
    config.name = name;
    config.validate();
    return config;
  }
  throw Error(ErrorCode::bad_option, "", "--preset", "must be one of " + known + ", got '" + std::string(name) + "'");
}

ModelConfig with_scheme(ModelConfig config, const QuantScheme& scheme) {
  config.quant = {.algo = scheme.algo, .fp8_kv_cache = config.quant.fp8_kv_cache && scheme.algo == QuantAlgo::nvfp4};
  if (scheme.algo == QuantAlgo::nvfp4)
    config.quant.exclude = {"*.indexer*", "*.mlp.gate", "lm_head", "model.layers." + std::to_string(config.num_hidden_layers) + "*"};
  // The indexer's keys of V3.2 are multiplied in blocks of fp8 or not at all.
  if (config.sparse() && scheme.algo != QuantAlgo::none && scheme.linears != WeightForm::fp8_block && config.quant.exclude.list().empty())
    config.quant.exclude.add("*.indexer*");
  config.name += ", " + std::string(scheme.name);
  config.validate();
  return config;
}

}  // namespace dodona::model
