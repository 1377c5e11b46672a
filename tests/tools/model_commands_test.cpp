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

TEST_F(ModelCommands, BadUseGetsOneClearErrorAndWritesNothing) {
  expect_error("shapes --preset r2", "must be one of r1-nvfp4, r1-nvfp4-tables, tiny");
  expect_error("shapes --config /nowhere", "/nowhere: not a folder");
  expect_error("shapes --preset tiny --layer 4", "layer 4 is out of range: tiny has layers 0 to 3");
  expect_error("synth " + path("a") + " --preset tiny --layers 0..4", "layer 4 is out of range");
  expect_error("synth " + path("a") + " --preset tiny --layers 2..1", "run backwards");
  expect_error("synth " + path("a") + " --preset tiny --layers -1", "--layers");
  expect_error("synth " + path("no/a") + " --preset tiny --layers 0", "no folder");
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
