// Configurations as files: config.json and hf_quant_config.json.
#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <tuple>

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

/// What else a model's file may say: read or checked below, or without effect on any number here.
constexpr std::array other_keys{
    // Of DeepSeek's configurations.
    "architectures", "model_type", "attention_bias", "hidden_act", "moe_layer_freq", "norm_topk_prob", "num_key_value_heads", "head_dim",
    "qk_head_dim", "partial_rotary_factor", "quantization_config", "rms_norm_eps", "rope_interleave", "rope_parameters", "rope_scaling",
    "rope_theta", "routed_scaling_factor", "scoring_func", "tie_word_embeddings", "topk_method", "torch_dtype", "dtype",
    // Training, and how a model was split there.
    "attention_dropout", "aux_loss_alpha", "router_aux_loss_coef", "output_router_logits", "seq_aux", "ep_size", "initializer_range",
    "pretraining_tp", "gradient_checkpointing",
    // What tokens mean, how they are chosen, which class reads them: said elsewhere, or with each call.
    "auto_map", "tokenizer_class", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id",
    "forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "max_length", "min_length",
    "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p",
    "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty",
    "num_return_sequences", "remove_invalid_values", "output_scores", "output_attentions", "output_hidden_states", "return_dict",
    "return_dict_in_generate", "use_cache", "transformers_version", "task_specific_params", "problem_type", "finetuning_task", "id2label",
    "label2id", "num_labels", "prefix", "pruned_heads", "chunk_size_feed_forward", "cross_attention_hidden_size", "torchscript",
    "use_bfloat16", "is_decoder", "is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder", "tf_legacy_loss", "name_or_path",
    "attn_implementation", "num_parameters", "unsloth_fixed", "unsloth_version"};

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

/// By `model_type`, which `architectures` must agree with; by the latter alone where there is no type.
const Architecture& architecture_of(const Json& json, const std::string& where) {
  std::vector<std::string> names;
  if (!absent(io::find_field(json, "architectures", where))) names = io::get_strings(json, "architectures", where);
  const bool typed = !absent(io::find_field(json, "model_type", where));
  const std::string found = typed ? io::get_string(json, "model_type", where) : std::string();
  const auto fits = [&](const Architecture& each) {
    return (typed ? found == each.type : !names.empty()) && (names.empty() || names.front() == each.name);
  };
  const auto* const first = std::find_if(architectures.begin(), architectures.end(), fits);
  if (first != architectures.end()) return *first;
  if (!typed && names.empty()) throw Error(ErrorCode::bad_file, "", "", where + ": model_type is missing");
  std::string expected;
  for (const Architecture& each : architectures)
    expected += std::string(expected.empty() ? "" : ", ") + io::quote(each.type) + " (" + each.name + ")";
  unsupported(where, (typed ? "model_type is " + io::quote(found) : std::string("model_type is missing")) +
                         (names.empty() ? "" : " and architectures " + io::quote(names.front())) + ", expected one of " + expected);
}
const Architecture& architecture_of(const ModelConfig& config) {
  return architectures[config.sparse() ? 1 : config.routes_by_softmax() ? 2 : 0];
}

/// null, false and what is empty say that a model does without.
bool says_none(const Json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

/// Every field counts: what nobody here knows may change the model's numbers. Names that begin with _ are notes.
template <class Known>
void refuse_unknown_keys(const Json& json, const Known& known, const std::string& where, const char* of) {
  if (!json.is_object()) throw Error(ErrorCode::bad_file, "", "", where + ": expected an object");
  for (const auto& [key, value] : json.items())
    if (!key.starts_with('_') && !says_none(value) && std::find(known.begin(), known.end(), key) == known.end())
      unsupported(where, "field " + io::quote(key) + " is not one of " + of +
                             " that this library runs; it may change the numbers (remove it, or begin its name with _, if it does not)");
}

void refuse_unknown_fields(const Json& json, bool sparse, const std::string& where) {
  std::vector<std::string_view> known(other_keys.begin(), other_keys.end());
  for (const IntField& field : int_fields) known.emplace_back(field.key);
  if (sparse)
    for (const IntField& field : index_fields) known.emplace_back(field.key);
  refuse_unknown_keys(json, known, where, "a DeepSeek V3/R1 model");
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

constexpr std::array rope_keys{"type",
                               "rope_type",
                               "rope_theta",
                               "partial_rotary_factor",
                               "factor",
                               "original_max_position_embeddings",
                               "beta_fast",
                               "beta_slow",
                               "mscale",
                               "mscale_all_dim",
                               "extrapolation_factor",
                               "attn_factor",
                               "truncate",
                               "attention_factor"};

/// All of qk_rope_head_dim turns.
void require_whole_rotation(const Json& json, const std::string& where) {
  if (absent(io::find_field(json, "partial_rotary_factor", where))) return;
  if (const double found = io::get_double(json, "partial_rotary_factor", where); found != 1)
    unsupported(where, "partial_rotary_factor is " + io::json_text(found) + ", expected 1");
}

double double_or(const Json& json, const char* key, double fallback, const std::string& where) {
  return absent(io::find_field(json, key, where)) ? fallback : io::get_double(json, key, where);
}

/// "yarn", or "default" for plain rope. Upstream takes every rope_scaling for YaRN; one that names no type is not guessed.
std::string rope_type(const Json& rope, const std::string& place) {
  std::string type;
  for (const char* key : {"rope_type", "type"}) {
    if (absent(io::find_field(rope, key, place))) continue;
    std::string found = io::get_string(rope, key, place);
    if (found == "deepseek_yarn") found = "yarn";
    if (!type.empty() && type != found) contradiction(place, "rope_type is " + io::quote(type) + ", type " + io::quote(found));
    type = found;
  }
  // rope_parameters may hold nothing but the base.
  const auto scales = [](std::string_view key) { return key != "rope_theta" && key != "partial_rotary_factor" && key != "truncate"; };
  if (type.empty())
    for (const auto& [key, value] : rope.items())
      if (scales(key) && !says_none(value)) throw Error(ErrorCode::bad_file, "", "", place + ": type is missing ('yarn' or 'default')");
  if (type.empty()) return "default";
  if (type != "yarn" && type != "default") unsupported(place, "type is " + io::quote(type) + ", expected 'yarn' or 'default'");
  return type;
}

std::optional<YarnConfig> read_yarn(const Json& rope, const std::string& place) {
  refuse_unknown_keys(rope, rope_keys, place, "rope's");
  require_whole_rotation(rope, place);
  if (rope_type(rope, place) == "default") return std::nullopt;
  YarnConfig yarn;
  yarn.factor = io::get_double(rope, "factor", place);
  yarn.original_max_positions = io::get_int(rope, "original_max_position_embeddings", place);
  yarn.beta_fast = double_or(rope, "beta_fast", yarn.beta_fast, place);
  yarn.beta_slow = double_or(rope, "beta_slow", yarn.beta_slow, place);
  yarn.mscale = double_or(rope, "mscale", yarn.mscale, place);
  yarn.mscale_all_dim = double_or(rope, "mscale_all_dim", yarn.mscale_all_dim, place);
  // Factors that other implementations of YaRN know: 1 where they leave the numbers as they are.
  for (const char* key : {"extrapolation_factor", "attn_factor"})
    if (const double found = double_or(rope, key, 1, place); found != 1)
      unsupported(place, std::string(key) + " is " + io::json_text(found) + ", expected 1");
  require_flag(rope, "truncate", true, place);
  if (!absent(io::find_field(rope, "attention_factor", place)))
    unsupported(place, "attention_factor is given, expected none: mscale and mscale_all_dim say how attention is scaled");
  return yarn;
}

auto numbers(const std::optional<YarnConfig>& yarn) {
  const YarnConfig y = yarn.value_or(YarnConfig{});
  return std::tuple(yarn.has_value(), y.factor, y.beta_fast, y.beta_slow, y.mscale, y.mscale_all_dim, y.original_max_positions);
}

/// `rope_theta` and `rope_scaling`; newer files have both in `rope_parameters`, and some of them all three. What is said twice must agree.
void read_rope(const Json& json, ModelConfig& config, const std::string& where) {
  require_whole_rotation(json, where);
  std::optional<double> theta;
  const auto take_theta = [&](const Json& from, const std::string& place) {
    if (absent(io::find_field(from, "rope_theta", place))) return;
    const double found = io::get_double(from, "rope_theta", place);
    if (theta && *theta != found)
      contradiction(place, "rope_theta is " + io::json_text(found) + ", elsewhere it is " + io::json_text(*theta));
    theta = found;
  };
  take_theta(json, where);
  bool read = false;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* const rope = io::find_field(json, key, where);
    if (absent(rope)) continue;
    const std::string place = where + ": " + key;
    const std::optional<YarnConfig> yarn = read_yarn(*rope, place);
    take_theta(*rope, place);
    if (read && numbers(yarn) != numbers(config.yarn)) contradiction(where, "rope_scaling contradicts rope_parameters");
    config.yarn = yarn;
    read = true;
  }
  config.rope_theta = theta.value_or(config.rope_theta);
}

/// sigmoid with a correction bias, or V2's: softmax without.
void read_router(const Json& json, const Architecture& architecture, ModelConfig& config, const std::string& where) {
  const auto text_or = [&](const char* key, const char* fallback) {
    return absent(io::find_field(json, key, where)) ? std::string(fallback) : io::get_string(json, key, where);
  };
  config.scoring_func = text_or("scoring_func", architecture.scoring_func);
  config.topk_method = text_or("topk_method", architecture.topk_method);
  config.norm_topk_prob =
      absent(io::find_field(json, "norm_topk_prob", where)) ? architecture.norm_topk_prob : io::get_bool(json, "norm_topk_prob", where);
  const bool v3 = config.scoring_func == "sigmoid" && config.topk_method == "noaux_tc";
  const bool v2 = config.scoring_func == "softmax" && (config.topk_method == "greedy" || config.topk_method == "group_limited_greedy");
  if (!v3 && !v2)
    unsupported(where, "scoring_func is " + io::quote(config.scoring_func) + " and topk_method " + io::quote(config.topk_method) +
                           ", expected 'sigmoid' and 'noaux_tc', or 'softmax' and 'greedy' or 'group_limited_greedy'");
}

void read_model(const Json& json, ModelConfig& config, const std::string& where) {
  const Architecture& architecture = architecture_of(json, where);
  refuse_unknown_fields(json, architecture.sparse, where);
  if (architecture.sparse)
    for (const IntField& field : index_fields) config.*field.member = io::get_int(json, field.key, where);
  // null says that there are none; where the field is left out, HuggingFace's class of each model has another number for it.
  for (const char* key : {"q_lora_rank", "n_routed_experts"}) io::get_field(json, key, where);
  for (const IntField& field : int_fields)
    if (field.required || !absent(io::find_field(json, field.key, where))) config.*field.member = io::get_int(json, field.key, where);
  if (!absent(io::find_field(json, "moe_layer_freq", where))) config.moe_layer_freq = io::get_int(json, "moe_layer_freq", where);
  config.rms_norm_eps = io::get_double(json, "rms_norm_eps", where);
  config.routed_scaling_factor = double_or(json, "routed_scaling_factor", 1, where);
  read_rope(json, config, where);

  require_text(json, "hidden_act", "silu", where);
  read_router(json, architecture, config, where);
  if (config.n_routed_experts > 0) {
    for (const char* key : {"moe_intermediate_size", "num_experts_per_tok", "first_k_dense_replace"}) io::get_int(json, key, where);
    io::get_field(json, "n_shared_experts", where);
    io::get_double(json, "routed_scaling_factor", where);
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

/// Both factors of an NVFP4 product have 4 bits; weights alone make another kernel.
void require_activations(const Json& group, const std::string& place) {
  const Json* const activations = io::find_field(group, "input_activations", place);
  if (absent(activations)) return;
  const std::string where = place + ".input_activations";
  if (const std::int64_t bits = io::get_int_or(*activations, "num_bits", 4, where); bits != 4)
    unsupported(where, std::to_string(bits) + " bits, expected 4 (NVFP4)");
  require_text(*activations, "type", "float", where);
  require_flag(*activations, "dynamic", false, where);
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
      require_text(*weights, "type", "float", place + ".weights");
      require_activations(group, place);
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
    require_flag(*scheme, "dynamic", false, place);
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
    for (const std::string& name : found)
      if (name.starts_with("re:"))
        unsupported(place,
                    std::string(key) + " has the regular expression " + io::quote(name) + ", expected names of modules (* is any text)");
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

/// Fields of all methods: read, or without effect on numbers.
constexpr std::array quant_keys{"quant_method",
                                "quant_algo",
                                "kv_cache_quant_algo",
                                "kv_cache_scheme",
                                "group_size",
                                "config_groups",
                                "exclude_modules",
                                "ignore",
                                "ignored_layers",
                                "modules_to_not_convert",
                                "weight_block_size",
                                "fmt",
                                "scale_fmt",
                                "activation_scheme",
                                "linear_activation_scheme",
                                "moe_activation_scheme",
                                "wbits",
                                "producer",
                                "version"};

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
  const std::string algo = optional_text(json, "quant_algo", place);
  if (!method.empty() && !method.starts_with("modelopt") && !algo.empty())
    contradiction(place, "quant_method is " + io::quote(method) + ", and quant_algo, which is ModelOpt's, " + io::quote(algo));
  if (method.empty() || method.starts_with("modelopt")) method = "modelopt";
  std::string known;
  for (const Method& each : methods) {
    if (method == each.name) {
      refuse_unknown_keys(json, quant_keys, place, "the quantizations");
      // Only ModelOpt's checkpoints have scales of a cache.
      if (method != "modelopt")
        for (const char* key : {"kv_cache_scheme", "kv_cache_quant_algo", "config_groups"})
          if (!absent(io::find_field(json, key, place))) unsupported(place, std::string(key) + " is given, expected none (" + method + ")");
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
  const auto names = [](const QuantConfig& quant) {
    return std::set<std::string>(quant.exclude.list().begin(), quant.exclude.list().end());
  };
  const std::set<std::string> left = names(a), right = names(b);
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
  if (!quant.exclude.list().empty()) json["ignore"] = quant.exclude.list();
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
                    {"exclude_modules", config.quant.exclude.list()}};
  return io::json_text(Json{{"producer", {{"name", "modelopt"}}}, {"quantization", quantization}}, 2) + "\n";
}

}  // namespace dodona::model
