// Configurations as files: config.json and hf_quant_config.json.
#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>

#include "dodona/error.h"
#include "io/json.h"
#include "io/text.h"
#include "model/config/config.h"

namespace dodona::model {
namespace {

namespace fs = std::filesystem;
using io::Json;

[[noreturn]] void contradiction(const std::string& where, const std::string& message) {
  throw Error(ErrorCode::bad_value, "", "", where + ": " + message);
}
[[noreturn]] void unsupported(const std::string& where, const std::string& message) {
  throw Error(ErrorCode::unsupported, "", "", where + ": " + message);
}

struct IntField {
  const char* key;
  std::int64_t ModelConfig::*member;
  bool required;  ///< otherwise absent or null leaves the default
};
constexpr std::array<IntField, 19> int_fields{{
    {"hidden_size", &ModelConfig::hidden_size, true},
    {"num_hidden_layers", &ModelConfig::num_hidden_layers, true},
    {"num_nextn_predict_layers", &ModelConfig::num_nextn_predict_layers, false},
    {"vocab_size", &ModelConfig::vocab_size, true},
    {"max_position_embeddings", &ModelConfig::max_position_embeddings, true},
    {"num_attention_heads", &ModelConfig::num_attention_heads, true},
    {"q_lora_rank", &ModelConfig::q_lora_rank, false},
    {"kv_lora_rank", &ModelConfig::kv_lora_rank, true},
    {"qk_nope_head_dim", &ModelConfig::qk_nope_head_dim, true},
    {"qk_rope_head_dim", &ModelConfig::qk_rope_head_dim, true},
    {"v_head_dim", &ModelConfig::v_head_dim, true},
    {"intermediate_size", &ModelConfig::intermediate_size, true},
    {"moe_intermediate_size", &ModelConfig::moe_intermediate_size, false},
    {"n_routed_experts", &ModelConfig::n_routed_experts, false},
    {"n_shared_experts", &ModelConfig::n_shared_experts, false},
    {"num_experts_per_tok", &ModelConfig::num_experts_per_tok, false},
    {"n_group", &ModelConfig::n_group, false},
    {"topk_group", &ModelConfig::topk_group, false},
    {"first_k_dense_replace", &ModelConfig::first_k_dense_replace, false},
}};

/// Those of sparse attention, which `deepseek_v32` has.
constexpr std::array<IntField, 3> index_fields{{
    {"index_n_heads", &ModelConfig::index_n_heads, true},
    {"index_head_dim", &ModelConfig::index_head_dim, true},
    {"index_topk", &ModelConfig::index_topk, true},
}};
constexpr const char* sparse_type = "deepseek_v32";

/// Keys that sound structural, are known, and change nothing here or are checked by themselves.
constexpr std::array<std::string_view, 14> other_known_keys{"moe_layer_freq",
                                                            "num_key_value_heads",
                                                            "head_dim",
                                                            "qk_head_dim",
                                                            "ep_size",
                                                            "num_beams",
                                                            "num_beam_groups",
                                                            "num_return_sequences",
                                                            "no_repeat_ngram_size",
                                                            "encoder_no_repeat_ngram_size",
                                                            "num_labels",
                                                            "n_ctx",
                                                            "num_parameters",
                                                            "moe_router_dtype"};

/// Whether a key that this library does not know may change the model's structure.
bool sounds_structural(std::string_view key) {
  for (const char* prefix : {"num_", "n_", "index_", "moe_"})
    if (key.starts_with(prefix)) return true;
  for (const char* suffix : {"_dim", "_rank", "_size", "_heads", "_experts", "_layers", "_freq", "_group", "_topk", "_window"})
    if (key.ends_with(suffix)) return true;
  return false;
}

bool absent(const Json* value) {
  return value == nullptr || value->is_null();
}

/// Of `model_type`.
struct Architecture {
  const char* type;
  const char* name;  ///< in `architectures`
  bool sparse = false;
  /// What its HuggingFace configuration class gives fields of the router that a file leaves out: transformers does not write V2's
  /// scoring_func.
  const char *scoring_func = "sigmoid", *topk_method = "noaux_tc";
  bool norm_topk_prob = true;
};
constexpr std::array<Architecture, 4> architectures{{{"deepseek_v3", "DeepseekV3ForCausalLM"},
                                                     {sparse_type, "DeepseekV32ForCausalLM", true},
                                                     {"deepseek_v2", "DeepseekV2ForCausalLM", false, "softmax", "greedy", false},
                                                     {"kimi_k2", "DeepseekV3ForCausalLM"}}};

const Architecture& architecture_of(const Json& json, const std::string& where) {
  const Json* const type = io::find_field(json, "model_type", where);
  if (absent(type)) return architectures.front();
  const std::string found = io::get_string(json, "model_type", where);
  for (const Architecture& each : architectures)
    if (found == each.type) return each;
  unsupported(where, "model_type is " + io::quote(found) + ", expected 'deepseek_v3', 'deepseek_v32', 'deepseek_v2' or 'kimi_k2'");
}
const Architecture& architecture_of(const ModelConfig& config) {
  return architectures[config.sparse() ? 1 : config.routes_by_softmax() ? 2 : 0];
}

void refuse_unknown_keys(const Json& json, bool sparse, const std::string& where) {
  const auto known = [&](std::string_view key) {
    const auto is_key = [&](const IntField& field) { return field.key == key; };
    return std::any_of(int_fields.begin(), int_fields.end(), is_key) ||
           (sparse && std::any_of(index_fields.begin(), index_fields.end(), is_key)) ||
           std::find(other_known_keys.begin(), other_known_keys.end(), key) != other_known_keys.end();
  };
  for (const auto& [key, value] : json.items())
    // sliding_window: null and its like say that the model does without.
    if (!known(key) && sounds_structural(key) && !value.is_null())
      unsupported(where, "field " + io::quote(key) + " is not one of a DeepSeek V3/R1 model that this library runs");
}

/// `key`, where present, must say `expected`: other values make another model.
void require_text(const Json& json, const char* key, std::string_view expected, const std::string& where) {
  if (absent(io::find_field(json, key, where))) return;
  const std::string found = io::get_string(json, key, where);
  if (found != expected) unsupported(where, std::string(key) + " is " + io::quote(found) + ", expected '" + std::string(expected) + "'");
}
void require_flag(const Json& json, const char* key, bool expected, const std::string& where) {
  if (absent(io::find_field(json, key, where))) return;
  if (io::get_bool(json, key, where) != expected)
    unsupported(where, std::string(key) + " is " + (expected ? "false" : "true") + ", expected " + (expected ? "true" : "false"));
}
void require_equal(const Json& json, const char* key, std::int64_t expected, const char* reason, const std::string& where) {
  if (absent(io::find_field(json, key, where))) return;
  const std::int64_t found = io::get_int(json, key, where);
  if (found != expected)
    contradiction(where,
                  std::string(key) + " is " + std::to_string(found) + ", expected " + std::to_string(expected) + " (" + reason + ")");
}

/// `rope_scaling`, or `rope_parameters`, which holds rope_theta too.
void read_rope(const Json& json, ModelConfig& config, const std::string& where) {
  const Json* parameters = io::find_field(json, "rope_parameters", where);
  const Json* scaling = io::find_field(json, "rope_scaling", where);
  if (!absent(io::find_field(json, "rope_theta", where))) config.rope_theta = io::get_double(json, "rope_theta", where);
  if (!absent(parameters) && !absent(io::find_field(*parameters, "rope_theta", where + ": rope_parameters"))) {
    const double theta = io::get_double(*parameters, "rope_theta", where + ": rope_parameters");
    if (!absent(io::find_field(json, "rope_theta", where)) && theta != config.rope_theta)
      contradiction(where, "rope_theta contradicts rope_parameters.rope_theta");
    config.rope_theta = theta;
  }
  const Json* rope = !absent(scaling) ? scaling : parameters;
  if (absent(rope)) return;
  const std::string place = where + (rope == scaling ? ": rope_scaling" : ": rope_parameters");
  const std::string type = !absent(io::find_field(*rope, "rope_type", place)) ? io::get_string(*rope, "rope_type", place)
                                                                              : io::get_string_or(*rope, "type", "default", place);
  if (type == "default") return;
  if (type != "yarn" && type != "deepseek_yarn") unsupported(place, "type is " + io::quote(type) + ", expected 'yarn' or 'default'");
  YarnConfig yarn;
  yarn.factor = io::get_double(*rope, "factor", place);
  yarn.original_max_positions = io::get_int(*rope, "original_max_position_embeddings", place);
  yarn.beta_fast = io::get_double_or(*rope, "beta_fast", yarn.beta_fast, place);
  yarn.beta_slow = io::get_double_or(*rope, "beta_slow", yarn.beta_slow, place);
  yarn.mscale = io::get_double_or(*rope, "mscale", yarn.mscale, place);
  yarn.mscale_all_dim = io::get_double_or(*rope, "mscale_all_dim", yarn.mscale_all_dim, place);
  // Factors that other implementations of YaRN know: 1 where they leave the numbers as they are.
  for (const char* key : {"extrapolation_factor", "attn_factor"})
    if (const double found = io::get_double_or(*rope, key, 1, place); found != 1)
      unsupported(place, std::string(key) + " is " + io::json_text(found) + ", expected 1");
  require_flag(*rope, "truncate", true, place);
  if (!absent(io::find_field(*rope, "attention_factor", place)))
    unsupported(place, "attention_factor is given, expected none: mscale and mscale_all_dim say how attention is scaled");
  config.yarn = yarn;
}

/// sigmoid with a correction bias, or V2's: softmax without.
void read_router(const Json& json, const Architecture& architecture, ModelConfig& config, const std::string& where) {
  config.scoring_func = io::get_string_or(json, "scoring_func", architecture.scoring_func, where);
  config.topk_method = io::get_string_or(json, "topk_method", architecture.topk_method, where);
  config.norm_topk_prob = io::get_bool_or(json, "norm_topk_prob", architecture.norm_topk_prob, where);
  const bool v3 = config.scoring_func == "sigmoid" && config.topk_method == "noaux_tc";
  const bool v2 = config.scoring_func == "softmax" && (config.topk_method == "greedy" || config.topk_method == "group_limited_greedy");
  if (!v3 && !v2)
    unsupported(where, "scoring_func is " + io::quote(config.scoring_func) + " and topk_method " + io::quote(config.topk_method) +
                           ", expected 'sigmoid' and 'noaux_tc', or 'softmax' and 'greedy' or 'group_limited_greedy'");
}

void read_model(const Json& json, ModelConfig& config, const std::string& where) {
  const Architecture& architecture = architecture_of(json, where);
  refuse_unknown_keys(json, architecture.sparse, where);
  if (architecture.sparse)
    for (const IntField& field : index_fields) config.*field.member = io::get_int(json, field.key, where);
  for (const IntField& field : int_fields)
    if (field.required || !absent(io::find_field(json, field.key, where))) config.*field.member = io::get_int(json, field.key, where);
  config.moe_layer_freq = io::get_int_or(json, "moe_layer_freq", 1, where);
  config.rms_norm_eps = io::get_double(json, "rms_norm_eps", where);
  config.routed_scaling_factor = io::get_double_or(json, "routed_scaling_factor", 1, where);
  read_rope(json, config, where);

  require_text(json, "hidden_act", "silu", where);
  read_router(json, architecture, config, where);
  if (config.n_routed_experts > 0) {
    for (const char* key : {"moe_intermediate_size", "num_experts_per_tok", "first_k_dense_replace"}) io::get_int(json, key, where);
    // greedy looks at no groups: V2's class leaves them null.
    if (config.topk_method != "greedy")
      for (const char* key : {"n_group", "topk_group"}) io::get_int(json, key, where);
  }
  require_text(json, "torch_dtype", "bfloat16", where);
  require_text(json, "dtype", "bfloat16", where);
  require_flag(json, "attention_bias", false, where);
  require_flag(json, "tie_word_embeddings", false, where);
  require_flag(json, "rope_interleave", true, where);
}

/// Fields that follow from others, which are known to be sizes by then.
void check_derived(const Json& json, const ModelConfig& config, const std::string& where) {
  require_equal(json, "num_key_value_heads", config.num_attention_heads, "num_attention_heads: every head has its own key", where);
  require_equal(json, "qk_head_dim", config.qk_head_dim(), "qk_nope_head_dim + qk_rope_head_dim", where);
}

std::string optional_text(const Json& json, const char* key, const std::string& where) {
  return absent(io::find_field(json, key, where)) ? std::string() : io::get_string(json, key, where);
}

/// Group sizes at top level and inside config_groups.*.weights, which must agree.
std::int64_t read_group_size(const Json& json, const std::string& where) {
  std::optional<std::int64_t> size;
  const auto take = [&](std::int64_t found, const std::string& place) {
    if (size && *size != found)
      contradiction(place, "group_size is " + std::to_string(found) + ", elsewhere it is " + std::to_string(*size));
    size = found;
  };
  if (!absent(io::find_field(json, "group_size", where))) take(io::get_int(json, "group_size", where), where);
  if (const Json* groups = io::find_field(json, "config_groups", where); !absent(groups)) {
    if (!groups->is_object()) contradiction(where, "config_groups is no object");
    for (const auto& [key, group] : groups->items()) {
      const std::string place = where + ": config_groups." + io::quote(key);
      const Json* weights = io::find_field(group, "weights", place);
      if (absent(weights)) continue;
      const std::int64_t bits = io::get_int_or(*weights, "num_bits", 4, place);
      if (bits != 4) unsupported(place, "weights of " + std::to_string(bits) + " bits, expected 4 (NVFP4)");
      if (!absent(io::find_field(*weights, "group_size", place))) take(io::get_int(*weights, "group_size", place), place);
    }
  }
  if (!size) throw Error(ErrorCode::bad_file, "", "", where + ": group_size is missing");
  if (*size != 16) unsupported(where, "group_size is " + std::to_string(*size) + ", expected 16 (NVFP4)");
  return *size;
}

bool read_kv_cache(const Json& json, const std::string& where) {
  const std::string algo = optional_text(json, "kv_cache_quant_algo", where);
  const Json* scheme = io::find_field(json, "kv_cache_scheme", where);
  bool by_scheme = false;
  if (!absent(scheme)) {
    const std::string place = where + ": kv_cache_scheme";
    const std::string type = io::get_string(*scheme, "type", place);
    const std::int64_t bits = io::get_int(*scheme, "num_bits", place);
    if (type != "float" || bits != 8) unsupported(place, io::quote(type) + " of " + std::to_string(bits) + " bits, expected 'float' of 8");
    by_scheme = true;
    if (!algo.empty() && algo != "FP8")
      contradiction(where, "kv_cache_quant_algo " + io::quote(algo) + " contradicts kv_cache_scheme (FP8)");
  }
  if (!algo.empty() && algo != "FP8") unsupported(where, "kv_cache_quant_algo is " + io::quote(algo) + ", expected 'FP8' or null");
  return by_scheme || algo == "FP8";
}

/// The modules that stay bf16, under any of the names that the methods have for the list; those given must agree.
std::vector<std::string> read_exclude(const Json& json, const std::string& place) {
  std::vector<std::string> names;
  const char* given = nullptr;
  for (const char* key : {"exclude_modules", "ignore", "ignored_layers", "modules_to_not_convert"}) {
    if (absent(io::find_field(json, key, place))) continue;
    auto found = io::get_strings(json, key, place);
    if (given != nullptr && found != names) contradiction(place, std::string(given) + " and " + key + " name different modules");
    names = std::move(found);
    given = key;
  }
  return names;
}

/// ModelOpt's, in both spellings.
QuantConfig read_modelopt(const Json& json, const std::string& place) {
  const std::string algo = optional_text(json, "quant_algo", place);
  if (algo.empty()) throw Error(ErrorCode::bad_file, "", "", place + ": quant_algo is missing");
  if (algo != "NVFP4") unsupported(place, "quant_algo is " + io::quote(algo) + ", expected 'NVFP4'");
  QuantConfig quant;
  quant.algo = QuantAlgo::nvfp4;
  quant.group_size = read_group_size(json, place);
  quant.fp8_kv_cache = read_kv_cache(json, place);
  return quant;
}

/// `weight_block_size` and `group_size`, which some configurations repeat, of blocks of 128.
void require_blocks(const Json& json, const std::string& place) {
  const Json* const block = io::find_field(json, "weight_block_size", place);
  if (!absent(block) && *block != Json{128, 128})
    unsupported(place, "weight_block_size is " + io::json_text(*block) + ", expected [128, 128]");
  if (const std::int64_t group = io::get_int_or(json, "group_size", 128, place); group != 128)
    unsupported(place, "group_size is " + std::to_string(group) + ", expected 128");
}

/// fp8 of 128 x 128.
QuantConfig read_fp8_blocks(const Json& json, const std::string& place) {
  require_text(json, "fmt", "e4m3", place);
  require_text(json, "activation_scheme", "dynamic", place);
  const std::string scales = optional_text(json, "scale_fmt", place);
  if (!scales.empty() && scales != "ue8m0" && scales != "float")
    unsupported(place, "scale_fmt is " + io::quote(scales) + ", expected 'ue8m0' or 'float'");
  if (absent(io::find_field(json, "weight_block_size", place)))
    unsupported(place, "weight_block_size is missing, expected [128, 128] (one scale for a tensor is not read)");
  require_blocks(json, place);
  return {.algo = QuantAlgo::fp8_block};
}

/// Experts in int4 with a static scale of their activations, all else in blocks of fp8.
QuantConfig read_w4afp8(const Json& json, const std::string& place) {
  require_text(json, "fmt", "e4m3", place);
  require_text(json, "linear_activation_scheme", "dynamic", place);
  require_text(json, "moe_activation_scheme", "static", place);
  require_blocks(json, place);
  return {.algo = QuantAlgo::w4afp8};
}

/// A scale for each row of the weights, and for each token.
template <QuantAlgo algo>
QuantConfig read_by_channel(const Json& json, const std::string& place) {
  require_text(json, "activation_scheme", "dynamic", place);
  if (!absent(io::find_field(json, "weight_block_size", place)))
    unsupported(place, "weight_block_size is given, expected none: each row has a scale");
  return {.algo = algo};
}

QuantConfig read_qserve(const Json& json, const std::string& place) {
  if (const std::int64_t bits = io::get_int_or(json, "wbits", 4, place); bits != 4)
    unsupported(place, "wbits is " + std::to_string(bits) + ", expected 4");
  const std::int64_t group = io::get_int(json, "group_size", place);
  if (group != -1 && group != 128) unsupported(place, "group_size is " + std::to_string(group) + ", expected -1 or 128");
  return {.algo = group == -1 ? QuantAlgo::qserve_channel : QuantAlgo::qserve_group};
}

struct Method {
  std::string_view name;
  QuantConfig (*read)(const Json&, const std::string& place);
};
constexpr std::array<Method, 6> methods{{{"modelopt", read_modelopt},
                                         {"fp8", read_fp8_blocks},
                                         {"w8a8_fp8", read_by_channel<QuantAlgo::fp8>},
                                         {"w8a8_int8", read_by_channel<QuantAlgo::int8>},
                                         {"qoq", read_qserve},
                                         {"w4afp8", read_w4afp8}}};

/// `{"quantization": {..., "exclude_modules"}}` and the flat spelling with `ignore`; other methods are flat.
QuantConfig read_quant(const Json& outer, const std::string& where) {
  const Json* nested = io::find_field(outer, "quantization", where);
  const Json& json = nested != nullptr ? *nested : outer;
  const std::string place = nested != nullptr ? where + ": quantization" : where;
  std::string method = optional_text(json, "quant_method", place);
  if (method.empty() || method.starts_with("modelopt") || !optional_text(json, "quant_algo", place).empty()) method = "modelopt";
  std::string known;
  for (const Method& each : methods) {
    if (method == each.name) {
      QuantConfig quant = each.read(json, place);
      quant.exclude = read_exclude(json, place);
      return quant;
    }
    known += (known.empty() ? "" : ", ") + std::string(each.name);
  }
  unsupported(place, "quant_method is " + io::quote(method) + ", expected one of " + known);
}

void require_same(const QuantConfig& a, const QuantConfig& b, const std::string& folder) {
  const std::string where = folder + ": hf_quant_config.json contradicts quantization_config of config.json";
  if (a.algo != b.algo)
    contradiction(where, "one is " + std::string(scheme_of(a.algo).name) + ", the other " + std::string(scheme_of(b.algo).name));
  if (a.fp8_kv_cache != b.fp8_kv_cache) contradiction(where, "one has an FP8 KV cache, the other has not");
  const std::set<std::string> left(a.exclude.begin(), a.exclude.end()), right(b.exclude.begin(), b.exclude.end());
  std::vector<std::string> differing;
  std::set_symmetric_difference(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(differing));
  if (!differing.empty()) contradiction(where, "only one of them excludes " + io::quote(differing.front()));
}

}  // namespace

ModelConfig load_config(const std::string& folder) {
  const fs::path path(folder);
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) throw Error(ErrorCode::bad_file, "", "", folder + ": not a folder");
  const std::string where = (path / "config.json").string();
  const Json json = io::read_json(where);
  if (!json.is_object()) throw Error(ErrorCode::bad_file, "", "", where + ": expected an object");
  ModelConfig config;
  config.name = where;
  read_model(json, config, where);

  std::optional<QuantConfig> embedded, separate;
  const Json* quantization = io::find_field(json, "quantization_config", where);
  if (!absent(quantization)) embedded = read_quant(*quantization, where + ": quantization_config");
  const std::string quant_file = (path / "hf_quant_config.json").string();
  if (fs::exists(quant_file, ignored)) separate = read_quant(io::read_json(quant_file), quant_file);
  if (embedded && separate) require_same(*separate, *embedded, folder);
  if (separate)
    config.quant = *separate;
  else if (embedded)
    config.quant = *embedded;
  config.validate();
  check_derived(json, config, where);
  return config;
}

namespace {

/// `quantization_config` of the flat spelling.
Json flat_quant(const QuantConfig& quant) {
  const QuantScheme& scheme = scheme_of(quant.algo);
  Json json{{"quant_method", scheme.method}};
  switch (quant.algo) {
    case QuantAlgo::nvfp4:
      json["quant_algo"] = "NVFP4";
      json["config_groups"] = {
          {"group_0", {{"weights", {{"num_bits", 4}, {"type", "float"}, {"group_size", quant.group_size}}}, {"targets", {"Linear"}}}}};
      if (quant.fp8_kv_cache) json["kv_cache_scheme"] = {{"type", "float"}, {"num_bits", 8}};
      break;
    case QuantAlgo::fp8_block: json["activation_scheme"] = "dynamic", json["fmt"] = "e4m3", json["weight_block_size"] = {128, 128}; break;
    case QuantAlgo::qserve_channel: json["wbits"] = 4, json["group_size"] = -1; break;
    case QuantAlgo::qserve_group: json["wbits"] = 4, json["group_size"] = 128; break;
    default: break;
  }
  if (!quant.exclude.empty()) json["ignore"] = quant.exclude;
  return json;
}

}  // namespace

std::string config_json(const ModelConfig& config, QuantSpelling spelling) {
  Json json{{"architectures", {architecture_of(config).name}},
            {"attention_bias", false},
            {"attention_dropout", 0.0},
            {"bos_token_id", 0},
            {"eos_token_id", 1},
            {"hidden_act", "silu"},
            {"initializer_range", 0.02},
            {"model_type", architecture_of(config).type}};
  for (const IntField& field : int_fields) json[field.key] = config.*field.member;
  if (config.sparse())
    for (const IntField& field : index_fields) json[field.key] = config.*field.member;
  if (config.q_lora_rank == 0) json["q_lora_rank"] = nullptr;
  json["moe_layer_freq"] = config.moe_layer_freq;
  json["norm_topk_prob"] = config.norm_topk_prob;
  json["num_key_value_heads"] = config.num_attention_heads;
  json["rms_norm_eps"] = config.rms_norm_eps;
  json["rope_theta"] = config.rope_theta;
  if (config.yarn)
    json["rope_scaling"] = {{"type", "yarn"},
                            {"factor", config.yarn->factor},
                            {"beta_fast", config.yarn->beta_fast},
                            {"beta_slow", config.yarn->beta_slow},
                            {"mscale", config.yarn->mscale},
                            {"mscale_all_dim", config.yarn->mscale_all_dim},
                            {"original_max_position_embeddings", config.yarn->original_max_positions}};
  json["routed_scaling_factor"] = config.routed_scaling_factor;
  json["scoring_func"] = config.scoring_func;
  json["tie_word_embeddings"] = false;
  json["topk_method"] = config.topk_method;
  json["torch_dtype"] = "bfloat16";
  json["use_cache"] = true;
  const bool separate = config.quant.algo == QuantAlgo::nvfp4 && spelling == QuantSpelling::separate;
  if (config.quant.algo != QuantAlgo::none && !separate) json["quantization_config"] = flat_quant(config.quant);
  return io::json_text(json, 2) + "\n";
}

std::string hf_quant_config_json(const ModelConfig& config) {
  if (config.quant.algo != QuantAlgo::nvfp4) return {};
  Json quantization{{"quant_algo", "NVFP4"},
                    {"kv_cache_quant_algo", config.quant.fp8_kv_cache ? Json("FP8") : Json(nullptr)},
                    {"group_size", config.quant.group_size},
                    {"exclude_modules", config.quant.exclude}};
  return io::json_text(Json{{"producer", {{"name", "modelopt"}}}, {"quantization", quantization}}, 2) + "\n";
}

}  // namespace dodona::model
