// The commands `shapes` and `synth` as a user meets them.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/temp_folder.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Output {
  std::string text;  ///< stdout, then stderr
  int status = -1;
};

Output run(const std::string& arguments) {
  Output output;
  FILE* pipe = popen((DODONA_COMMAND " " + arguments + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  std::size_t n = 0;
  while ((n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0) output.text.append(buffer.data(), n);
  output.status = WEXITSTATUS(pclose(pipe));
  return output;
}

void expect_error(const std::string& arguments, const std::string& expected) {
  const Output output = run(arguments);
  EXPECT_EQ(output.status, 2) << arguments;
  EXPECT_NE(output.text.find(expected), std::string::npos) << arguments << "\n" << output.text;
  EXPECT_EQ(output.text.find('\n'), output.text.size() - 1) << "more than one line: " << output.text;
}

class ModelCommands : public testing::Test {
 protected:
  std::string path(const char* name) const { return (folder_ / name).string(); }
  const dodona::helpers::TempFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(ModelCommands, HelpIsThere) {
  for (const char* arguments : {"shapes --help", "synth --help"}) EXPECT_EQ(run(arguments).status, 0) << arguments;
}

TEST_F(ModelCommands, ShapesPrintsSymbolsAndNumbersOnOneLine) {
  const Output output = run("shapes --preset r1-nvfp4-tables --phase decode");
  EXPECT_EQ(output.status, 0);
  EXPECT_NE(output.text.find("[B, Lq + Lkv + Dr] = [B, 2112]"), std::string::npos) << output.text;
  EXPECT_NE(output.text.find("attn: [Nh, B, Lkv] = [128, B, 512], w_vc: [Nh, Lkv, Dv] = [128, 512, 128]"), std::string::npos);
  EXPECT_EQ(output.text.find("self.attn_mha()"), std::string::npos);
}

TEST_F(ModelCommands, ShapesJsonHoldsEveryPhase) {
  const json book = json::parse(run("shapes --preset tiny --batch 3 --seq 5 --json").text);
  ASSERT_EQ(book["phases"].size(), 3u);
  for (const auto& op : book["phases"][0]["ops"])
    if (op["op"] == "self.q_b_proj()") EXPECT_EQ(op["outputs"][0]["shape"], json({15, 768}));
}

TEST_F(ModelCommands, SynthWritesWhatShapesReads) {
  EXPECT_EQ(run("synth " + path("model") + " --preset tiny --layers 0..1 --seed 3").status, 0);
  EXPECT_EQ(run("shapes --config " + path("model") + " --phase nextn").status, 0);
  const json index = json::parse(std::ifstream(path("model/model.safetensors.index.json")));
  EXPECT_TRUE(index["weight_map"].contains("model.layers.1.mlp.experts.15.down_proj.weight_scale_2"));
  EXPECT_FALSE(index["weight_map"].contains("model.layers.2.input_layernorm.weight"));
}

/// As `layer --plan` refuses them.
TEST_F(ModelCommands, ShapesMarksSizesThatItsKernelsDoNotTake) {
  ASSERT_EQ(run("synth " + path("model") + " --preset tiny --layers 0 --linear bf16").status, 0);
  json config = json::parse(std::ifstream(path("model/config.json")));
  EXPECT_EQ(run("shapes --config " + path("model")).text.find("not of these sizes"), std::string::npos);
  config["kv_lora_rank"] = 256, config["v_head_dim"] = 64;
  std::ofstream(path("model/config.json")) << config;
  const std::string decode = run("shapes --phase decode --config " + path("model")).text,
                    batch = run("shapes --phase decode --batch 2 --config " + path("model")).text,
                    prefill = run("shapes --phase prefill --config " + path("model")).text;
  EXPECT_NE(decode.find("cutlass_mla_decode / trtllm_batch_decode_with_kv_cache_mla: not of these sizes, but of kv_lora_rank 512 and "
                        "qk_rope_head_dim 64"),
            std::string::npos)
      << decode;
  EXPECT_NE(decode.find("decode_attention_fwd_grouped_rope: not of these sizes"), std::string::npos) << decode;
  EXPECT_NE(batch.find(" cutlass_mla_decode: not of these sizes"), std::string::npos) << batch;
  EXPECT_NE(
      prefill.find("trtllm_ragged_attention_deepseek: not of these sizes, but of qk_nope_head_dim + qk_rope_head_dim and v_head_dim of "
                   "192 and 128"),
      std::string::npos)
      << prefill;
  const json book = json::parse(run("shapes --phase decode --json --config " + path("model")).text);
  for (const auto& op : book["phases"][0]["ops"]) EXPECT_EQ(op["wants_sizes"].is_null(), op["op"] != "self.attn_mqa()") << op["op"];
}

TEST_F(ModelCommands, SynthSpellsTheQuantizationInOneFileOrInTwo) {
  const auto written = [&](const char* name, const std::string& options) {
    EXPECT_EQ(run("synth " + path(name) + " --preset tiny --layers 1 --seed 3 " + options).status, 0);
    return json::parse(std::ifstream(path(name) + "/config.json"));
  };
  EXPECT_FALSE(written("two", "").contains("quantization_config"));
  EXPECT_TRUE(fs::exists(path("two") + "/hf_quant_config.json"));
  const json flat = written("one", "--flat-quant-config")["quantization_config"];
  EXPECT_FALSE(fs::exists(path("one") + "/hf_quant_config.json"));
  EXPECT_EQ(flat["quant_algo"], "NVFP4");
  EXPECT_TRUE(flat.contains("group_size") || flat.contains("config_groups")) << flat;
  const auto digest = [&](const char* name) {
    return json::parse(run("layer --repeat 1 --kv-len 9 --layer 1 --json --weights " + path(name)).text)["digest"];
  };
  EXPECT_EQ(digest("one"), digest("two"));
  expect_error("synth " + path("none") + " --preset tiny-fp8 --layers 1 --flat-quant-config",
               "--flat-quant-config is given, but tiny-fp8 is fp8-block, not nvfp4");
  EXPECT_FALSE(fs::exists(path("none")));
}

TEST_F(ModelCommands, BadUseGetsOneClearErrorAndWritesNothing) {
  expect_error("shapes --preset r2", "must be one of r1-nvfp4, r1-nvfp4-tables, tiny");
  expect_error("shapes --config /nowhere", "/nowhere: not a folder");
  expect_error("shapes --preset tiny --phase decode --seq 5", "--seq is given, but the phase is decode, not prefill");
  expect_error("shapes --preset v2 --fused-shared", "--fused-shared needs exactly one shared expert, v2 has 2");
  expect_error("shapes --preset tiny --layer 0 --fused-shared", "--fused-shared is given, but layer 0 is dense");
  expect_error("inspect " + path(".") + " --preset tiny --layers 1..0", "--layers 1..0 run backwards");
  expect_error("shapes --preset tiny --layer 4", "layer 4 is out of range: tiny has layers 0 to 3");
  expect_error("synth " + path("a") + " --preset tiny --layers 0..4", "layer 4 is out of range");
  expect_error("synth " + path("a") + " --preset tiny --layers 2..1", "run backwards");
  expect_error("synth " + path("a") + " --preset tiny --layers -1", "--layers");
  expect_error("synth " + path("no/a") + " --preset tiny --layers 0", "no folder");
  const Output nan = run("synth " + path("a") + " --preset tiny --layers 0 --shard-gib nan");
  EXPECT_EQ(nan.status, 2);
  EXPECT_NE(nan.text.find("--shard-gib: must be a number from 1e-06 to 1024, got 'nan'"), std::string::npos) << nan.text;
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
