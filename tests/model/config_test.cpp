#include "model/config/config.h"

#include <tuple>

#include "helpers.h"
#include "io/json.h"

namespace dodona::model {
namespace {

using testing::expect_error;
using testing::TempFolder;

/// A folder with the given configuration and quantization, each changed by the test.
class ConfigFile : public ::testing::Test {
 protected:
  io::Json config = io::parse_json(config_json(preset("tiny")));
  io::Json quant = io::parse_json(hf_quant_config_json(preset("tiny")));

  ModelConfig load(bool with_quant = true) const {
    folder_.write("config.json", io::json_text(config));
    if (with_quant) folder_.write("hf_quant_config.json", io::json_text(quant));
    return load_config(folder_.path());
  }
  void refuses(ErrorCode code, const std::vector<std::string>& parts) const {
    expect_error([&] { load(); }, code, parts);
  }

  TempFolder folder_;
};

TEST(Preset, R1HasTheReleasedSizes) {
  const ModelConfig c = preset("r1-nvfp4");
  EXPECT_EQ(c.qkv_a_rows(), 2112);
  EXPECT_EQ(c.q_rows(), 24576);
  EXPECT_EQ(c.kv_b_rows(), 32768);
  EXPECT_EQ(c.o_columns(), 16384);
  EXPECT_EQ(c.intermediate_size, 18432);
  EXPECT_EQ(c.softmax_scale(), 0.1352337788608801);
  for (const std::int64_t layer : {0, 1, 2}) EXPECT_FALSE(c.is_moe_layer(layer));
  for (const std::int64_t layer : {3, 60, 61}) EXPECT_TRUE(c.is_moe_layer(layer));
  expect_error([&] { c.check_layer(62); }, ErrorCode::bad_value, {"layer 62", "layers 0 to 61"});
}

TEST(Preset, R1QuantizesWhatTheSecondReleaseDoes) {
  const ModelConfig c = preset("r1-nvfp4");
  for (const char* module : {"model.layers.0.self_attn.o_proj", "model.layers.60.self_attn.o_proj", "model.layers.0.mlp.gate_proj",
                             "model.layers.3.mlp.experts.255.down_proj", "model.layers.3.mlp.shared_experts.up_proj"})
    EXPECT_EQ(c.form_of(module), WeightForm::nvfp4) << module;
  for (const char* module :
       {"model.layers.0.self_attn.q_a_proj", "model.layers.3.self_attn.q_b_proj", "model.layers.3.self_attn.kv_b_proj",
        "model.layers.3.self_attn.kv_a_proj_with_mqa", "model.layers.3.self_attn.fused_qkv_a_proj_with_mqa", "model.layers.3.mlp.gate",
        "model.layers.61.self_attn.o_proj", "model.layers.61.mlp.experts.0.up_proj", "lm_head"})
    EXPECT_EQ(c.form_of(module), WeightForm::bf16) << module;
}

TEST(Preset, TablesQuantizeEveryLinearOfTheMainLayers) {
  const ModelConfig c = preset("r1-nvfp4-tables");
  EXPECT_EQ(c.intermediate_size, 2048);
  for (const char* module : {"model.layers.0.self_attn.q_a_proj", "model.layers.3.self_attn.kv_b_proj", "model.layers.3.mlp.gate"})
    EXPECT_EQ(c.form_of(module), WeightForm::nvfp4) << module;
}

TEST(Preset, UnknownNameListsTheKnownOnes) {
  expect_error([] { preset("r2"); }, ErrorCode::bad_option, {"r1-nvfp4-tables", "'r2'"});
}

TEST(Exclusion, StarIsAnyTextAndTheRestIsLiteral) {
  EXPECT_TRUE(glob_matches("model.layers.61*", "model.layers.61.mlp.gate"));
  EXPECT_TRUE(glob_matches("*self_attn*", "model.layers.3.self_attn.o_proj"));
  EXPECT_TRUE(glob_matches("a*b*c", "a-b-b-c"));
  EXPECT_TRUE(glob_matches("**", ""));
  EXPECT_FALSE(glob_matches("model.layers.6", "model.layers.61"));
  EXPECT_FALSE(glob_matches("model.layers.3.mlp.gate", "model.layers.3.mlp.gate_proj"));
  EXPECT_FALSE(glob_matches("a.b", "a-b"));
  EXPECT_FALSE(glob_matches("a*b", "ab-"));
}

TEST(Exclusion, LatentProjectionsAreExcludedByTheirLastPartOfAnyLayer) {
  const QuantConfig quant{.algo = QuantAlgo::nvfp4,
                          .exclude = {"model.layers.0.self_attn.kv_a_proj_with_mqa", "model.layers.0.self_attn.o_proj"}};
  EXPECT_TRUE(quant.excludes("model.layers.9.self_attn.kv_a_proj_with_mqa"));
  EXPECT_TRUE(quant.excludes("model.layers.9.self_attn.fused_qkv_a_proj_with_mqa"));
  EXPECT_TRUE(quant.excludes("model.layers.0.self_attn.o_proj"));
  EXPECT_FALSE(quant.excludes("model.layers.9.self_attn.o_proj"));
  EXPECT_FALSE(quant.excludes("model.layers.9.self_attn.q_a_proj"));
}

TEST(Exclusion, NamingTheExpertsExcludesEveryOne) {
  const QuantConfig quant{.algo = QuantAlgo::nvfp4, .exclude = {"model.layers.3.mlp.experts"}};
  EXPECT_TRUE(quant.excludes("model.layers.3.mlp.experts.17.up_proj"));
  EXPECT_FALSE(quant.excludes("model.layers.3.mlp.shared_experts.up_proj"));
}

TEST_F(ConfigFile, WhatIsWrittenReadsBackTheSame) {
  for (const std::string& name : preset_names()) {
    config = io::parse_json(config_json(preset(name)));
    const std::string separate = hf_quant_config_json(preset(name));
    if (!separate.empty()) quant = io::parse_json(separate);
    std::filesystem::remove(folder_.file("hf_quant_config.json"));
    const ModelConfig c = load(!separate.empty());
    EXPECT_EQ(config_json(c), config_json(preset(name)));
    EXPECT_EQ(hf_quant_config_json(c), hf_quant_config_json(preset(name)));
  }
}

TEST_F(ConfigFile, QuantizationMayBeEmbeddedInTheFlatSpelling) {
  config["quantization_config"] = {
      {"quant_method", "modelopt"},
      {"quant_algo", "NVFP4"},
      {"config_groups", {{"group_0", {{"weights", {{"num_bits", 4}, {"type", "float"}, {"group_size", 16}}}}}}},
      {"kv_cache_scheme", {{"type", "float"}, {"num_bits", 8}}},
      {"ignore", quant["quantization"]["exclude_modules"]}};
  const ModelConfig c = load(false);
  EXPECT_EQ(hf_quant_config_json(c), hf_quant_config_json(preset("tiny")));
}

TEST_F(ConfigFile, WithoutQuantizationEveryLinearIsBf16) {
  const ModelConfig c = load(false);
  EXPECT_EQ(c.quant.algo, QuantAlgo::none);
  EXPECT_EQ(c.form_of("model.layers.1.mlp.experts.0.up_proj"), WeightForm::bf16);
}

TEST_F(ConfigFile, RopeParametersAreTheNewSpellingOfRopeScaling) {
  config["rope_parameters"] = config["rope_scaling"];
  config["rope_parameters"]["rope_theta"] = 10000.0;
  config.erase("rope_scaling");
  config.erase("rope_theta");
  EXPECT_EQ(load().softmax_scale(), preset("tiny").softmax_scale());
}

TEST_F(ConfigFile, SizesThatContradictEachOtherAreRefused) {
  config["n_group"] = 3;
  refuses(ErrorCode::bad_value, {"config.json", "n_routed_experts is 16", "multiple of 3", "n_group"});
}
TEST_F(ConfigFile, MoreExpertsThanTheChosenGroupsHoldAreRefused) {
  config["num_experts_per_tok"] = 9;
  refuses(ErrorCode::bad_value, {"num_experts_per_tok is 9", "8"});
}
TEST_F(ConfigFile, FewerKeyHeadsThanQueryHeadsAreRefused) {
  config["num_key_value_heads"] = 2;
  refuses(ErrorCode::bad_value, {"num_key_value_heads is 2", "expected 4"});
}
TEST_F(ConfigFile, NumbersOfHeadsThatAreNoneAreRefusedThemselves) {
  config["num_attention_heads"] = -1;
  refuses(ErrorCode::bad_value, {"num_attention_heads is -1", "expected 1"});
}
TEST_F(ConfigFile, AHeadDimensionThatIsNoSumIsRefused) {
  config["qk_head_dim"] = 128;
  refuses(ErrorCode::bad_value, {"qk_head_dim is 128", "expected 192"});
}
TEST_F(ConfigFile, MorePositionsThanYarnCoversAreRefused) {
  config["max_position_embeddings"] = 163841;
  refuses(ErrorCode::bad_value, {"max_position_embeddings is 163841", "163840"});
}
TEST_F(ConfigFile, RowsThatDoNotDivideIntoGroupsAreRefused) {
  config["moe_intermediate_size"] = 120;
  refuses(ErrorCode::bad_value, {"moe_intermediate_size is 120", "multiple of 32"});
}
TEST_F(ConfigFile, AbsurdSizesAreRefused) {
  config["hidden_size"] = std::int64_t{1} << 40;
  refuses(ErrorCode::bad_value, {"hidden_size is 1099511627776"});
  config["hidden_size"] = -1;
  refuses(ErrorCode::bad_value, {"hidden_size is -1"});
}
TEST_F(ConfigFile, MissingAndMistypedFieldsAreNamed) {
  config.erase("kv_lora_rank");
  refuses(ErrorCode::bad_file, {"config.json", "kv_lora_rank", "missing"});
  config["kv_lora_rank"] = "512";
  refuses(ErrorCode::bad_file, {"kv_lora_rank", "a whole number"});
}
TEST_F(ConfigFile, UnknownStructuralFieldsAreRefused) {
  config["index_topk"] = 2048;
  refuses(ErrorCode::unsupported, {"'index_topk'"});
}
/// None of these sounds like a size, and each changes numbers in a model that has it.
TEST_F(ConfigFile, UnknownFieldsThatMayChangeNumbersAreRefused) {
  const io::Json whole = config;
  for (const auto& [key, value] : std::vector<std::pair<std::string, io::Json>>{{"use_qk_norm", true},
                                                                                {"swiglu_limit", 7.0},
                                                                                {"compression_config", {{"format", "pack-quantized"}}},
                                                                                {"llama_4_scaling", {{"beta", 0.1}}},
                                                                                {"hidden_activation", "gelu"},
                                                                                {"moe_router_dtype", "float32"},
                                                                                {"partial_rotary_factor", 0.5}}) {
    config = whole;
    config[key] = value;
    refuses(ErrorCode::unsupported, {"config.json", key});
  }
}
TEST_F(ConfigFile, NotesAndFieldsThatSayNoneAreNot) {
  config["_some_note"] = "kept";
  config["sliding_window"] = nullptr;
  config["use_qk_norm"] = false;
  config["pruned_heads"] = io::Json::object();
  config["seq_aux"] = true;
  EXPECT_EQ(load().hidden_size, 256);
}
/// HuggingFace's classes have other numbers for them than none, and each class its own.
TEST_F(ConfigFile, FieldsWhoseAbsenceSaysNothingMustBeThere) {
  const io::Json whole = config;
  for (const char* key : {"q_lora_rank", "n_routed_experts", "n_shared_experts", "routed_scaling_factor"}) {
    config = whole;
    config.erase(key);
    refuses(ErrorCode::bad_file, {"config.json", key, "missing"});
  }
}
TEST_F(ConfigFile, ArchitecturesAndModelTypeMustAgree) {
  config["architectures"] = {"DeepseekV2ForCausalLM"};
  refuses(ErrorCode::unsupported, {"model_type is 'deepseek_v3'", "'DeepseekV2ForCausalLM'"});
  config = io::parse_json(config_json(preset("v2-lite")));
  for (const char* key : {"model_type", "scoring_func", "topk_method", "norm_topk_prob"}) config.erase(key);
  EXPECT_EQ(config_json(load(false)), config_json(preset("v2-lite")));
  config.erase("architectures");
  expect_error([&] { load(false); }, ErrorCode::bad_file, {"model_type is missing"});
}
TEST_F(ConfigFile, ScalingOfRopeIsNeverGuessed) {
  const io::Json yarn = config["rope_scaling"];
  config["rope_scaling"].erase("type");
  refuses(ErrorCode::bad_file, {"rope_scaling", "type is missing"});
  config["rope_scaling"] = {{"full_attention", yarn}};
  refuses(ErrorCode::unsupported, {"rope_scaling", "'full_attention'"});
  config["rope_scaling"] = yarn;
  config["rope_scaling"]["rope_type"] = "linear";
  refuses(ErrorCode::bad_value, {"rope_scaling", "'linear'", "'yarn'"});
  config["rope_scaling"]["rope_type"] = "deepseek_yarn";
  config["rope_scaling"]["mscale_all_dim"] = nullptr;
  EXPECT_EQ(load().yarn->mscale_all_dim, 0);
  config["rope_parameters"] = yarn;
  refuses(ErrorCode::bad_value, {"rope_scaling contradicts rope_parameters"});
  config["rope_scaling"] = yarn;
  config["rope_scaling"]["rope_theta"] = 50000.0;
  refuses(ErrorCode::bad_value, {"rope_theta is 50000", "10000"});
}
TEST_F(ConfigFile, RoutersThatUpstreamDoesNotHaveAreRefusedWhenRead) {
  config["norm_topk_prob"] = false;
  refuses(ErrorCode::unsupported, {"norm_topk_prob", "moe_fused_gate"});
  config = io::parse_json(config_json(preset("v2-lite")));
  config["n_group"] = 8, config["topk_group"] = 3;
  expect_error([&] { load(false); }, ErrorCode::bad_value, {"'greedy'", "topk_group is 3"});
}
TEST_F(ConfigFile, WhatQuantizationsSayBesidesIsNotPassedOver) {
  const auto flat = [&](const io::Json& json, ErrorCode code, const std::string& part) {
    config["quantization_config"] = json;
    expect_error([&] { load(false); }, code, {"quantization_config", part});
  };
  const io::Json blocks{{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  const auto with = [](io::Json json, const char* key, const io::Json& value) {
    json[key] = value;
    return json;
  };
  flat(with(blocks, "kv_cache_scheme", {{"type", "float"}, {"num_bits", 8}}), ErrorCode::unsupported, "kv_cache_scheme");
  flat(with(blocks, "quant_algo", "NVFP4"), ErrorCode::bad_value, "quant_algo");
  flat(with(blocks, "ignore", {"re:.*self_attn.*"}), ErrorCode::unsupported, "re:.*self_attn.*");
  flat(with(blocks, "has_zero_point", true), ErrorCode::unsupported, "has_zero_point");
  const auto nvfp4 = [](const io::Json& weights, const io::Json& activations) {
    return io::Json{{"quant_method", "modelopt"},
                    {"quant_algo", "NVFP4"},
                    {"config_groups", {{"group_0", {{"weights", weights}, {"input_activations", activations}}}}}};
  };
  const io::Json four{{"num_bits", 4}, {"type", "float"}, {"group_size", 16}};
  flat(nvfp4(with(four, "type", "int"), nullptr), ErrorCode::unsupported, "type is 'int'");
  flat(nvfp4(four, {{"num_bits", 16}}), ErrorCode::unsupported, "16 bits");
  config["quantization_config"] = nvfp4(four, with(four, "dynamic", false));
  EXPECT_EQ(load(false).quant.algo, QuantAlgo::nvfp4);
}
TEST_F(ConfigFile, OtherArchitecturesAreRefused) {
  config["model_type"] = "llama";
  refuses(ErrorCode::unsupported, {"model_type is 'llama'", "'deepseek_v3'"});
}
TEST_F(ConfigFile, OtherQuantizationsAreRefused) {
  quant["quantization"]["quant_algo"] = "MIXED_PRECISION";
  refuses(ErrorCode::unsupported, {"hf_quant_config.json", "'MIXED_PRECISION'", "'NVFP4'"});
  quant["quantization"]["quant_algo"] = "NVFP4";
  quant["quantization"]["group_size"] = 32;
  refuses(ErrorCode::unsupported, {"group_size is 32", "16"});
  quant["quantization"].erase("group_size");
  refuses(ErrorCode::bad_file, {"group_size is missing"});
}
TEST_F(ConfigFile, TwoQuantizationsThatDifferAreRefused) {
  config["quantization_config"] = quant["quantization"];
  config["quantization_config"]["exclude_modules"] = {"lm_head"};
  refuses(ErrorCode::bad_value,
          {"hf_quant_config.json contradicts", "only one of them excludes 'model.layers.0.self_attn.kv_a_proj_with_mqa'"});
}
TEST_F(ConfigFile, EveryMethodReadsBackFromTheFlatSpelling) {
  for (const QuantScheme& scheme : quant_schemes()) {
    ModelConfig expected = with_scheme(preset("tiny-fp8"), scheme);
    expected.quant.exclude.add("model.layers.2");
    config = io::parse_json(config_json(expected, QuantSpelling::flat));
    const ModelConfig c = load(false);
    EXPECT_EQ(c.quant.algo, scheme.algo) << scheme.name;
    if (scheme.algo != QuantAlgo::none) EXPECT_EQ(c.quant.exclude.list(), expected.quant.exclude.list()) << scheme.name;
  }
}
TEST_F(ConfigFile, OtherBlocksAndMethodsAreRefusedByName) {
  const auto flat = [&](const io::Json& json) {
    config["quantization_config"] = json;
    expect_error([&] { load(false); }, ErrorCode::unsupported, {"quantization_config", "expected"});
  };
  flat({{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {64, 64}}});
  flat({{"quant_method", "fp8"}, {"fmt", "e4m3"}});
  flat({{"quant_method", "fp8"}, {"activation_scheme", "static"}, {"weight_block_size", {128, 128}}});
  flat({{"quant_method", "qoq"}, {"wbits", 4}, {"group_size", 64}});
  flat({{"quant_method", "awq"}});
  flat({{"quant_method", "w4afp8"}, {"group_size", 64}});
  flat({{"quant_method", "w4afp8"}, {"weight_block_size", {64, 128}}});
  flat({{"quant_method", "w4afp8"}, {"moe_activation_scheme", "dynamic"}});
  flat({{"quant_method", "w4afp8"}, {"linear_activation_scheme", "static"}});
  flat({{"quant_method", "w8a8_int8"}, {"activation_scheme", "static"}});
  flat({{"quant_method", "w8a8_int8"}, {"weight_block_size", {128, 128}}});
}
TEST_F(ConfigFile, FactorsOfYarnThatWouldChangeItsNumbersAreRefused) {
  const io::Json yarn = config["rope_scaling"];
  for (const auto& [key, neutral, other] : std::vector<std::tuple<std::string, io::Json, io::Json>>{
           {"extrapolation_factor", 1, 0.5}, {"attn_factor", 1.0, 2}, {"truncate", true, false}, {"attention_factor", nullptr, 1.3}}) {
    config["rope_scaling"] = yarn;
    config["rope_scaling"][key] = neutral;
    EXPECT_EQ(config_json(load()), config_json(preset("tiny"))) << key;
    config["rope_scaling"][key] = other;
    refuses(ErrorCode::unsupported, {"rope_scaling", key});
  }
}
/// transformers writes neither V2's scoring_func nor groups that greedy does not look at.
TEST_F(ConfigFile, WhatV2LeavesOutIsWhatItsClassSays) {
  config = io::parse_json(config_json(preset("v2-lite")));
  for (const char* key : {"scoring_func", "topk_method", "norm_topk_prob"}) config.erase(key);
  config["n_group"] = config["topk_group"] = nullptr;
  EXPECT_EQ(config_json(load(false)), config_json(preset("v2-lite")));
  config["topk_method"] = "group_limited_greedy";
  expect_error([&] { load(false); }, ErrorCode::bad_file, {"n_group"});
}
TEST_F(ConfigFile, RoutersThatNobodyHasAreRefused) {
  config["scoring_func"] = "softmax";
  refuses(ErrorCode::unsupported, {"scoring_func is 'softmax'", "'noaux_tc'"});
}
TEST_F(ConfigFile, AnLfsPointerIsToldFromAFile) {
  folder_.write("config.json", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
  expect_error([&] { load_config(folder_.path()); }, ErrorCode::bad_file, {"config.json", "Git LFS pointer"});
}
TEST_F(ConfigFile, AFolderWithoutConfigIsNamed) {
  expect_error([&] { load_config(folder_.path()); }, ErrorCode::bad_file, {"config.json"});
  expect_error([&] { load_config(folder_.file("nowhere")); }, ErrorCode::bad_file, {"nowhere", "not a folder"});
}

}  // namespace
}  // namespace dodona::model
