// The configurations that are built in.
#include <algorithm>

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
  quantize_as_v2(c);
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
  quantize_as_v2(c);
  return c;
}

}  // namespace

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> names{"r1-nvfp4", "r1-nvfp4-tables", "tiny", "deepseek_v32", "tiny-v32"};
  return names;
}

ModelConfig preset(std::string_view name) {
  ModelConfig config;
  if (name == "r1-nvfp4") {
    config = r1_nvfp4();
  } else if (name == "r1-nvfp4-tables") {
    config = r1_nvfp4_tables();
  } else if (name == "tiny") {
    config = tiny();
  } else if (name == "deepseek_v32") {
    config = r1();
    add_indexer(config, 64);
  } else if (name == "tiny-v32") {
    config = tiny();
    add_indexer(config, 32);
  } else {
    std::string known;
    for (const std::string& each : preset_names()) known += (known.empty() ? "" : ", ") + each;
    throw Error(ErrorCode::bad_option, "", "--preset", "must be one of " + known + ", got '" + std::string(name) + "'");
  }
  config.name = name;
  config.validate();
  return config;
}

}  // namespace dodona::model
