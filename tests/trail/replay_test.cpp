// Full-size FP8 layers of DeepSeek-R1 that an H100 ran from the kernels that serving ships (see tests/golden/_layers): composed from the
// ops' hopper modes, every model op gives the GPU's bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "io/json.h"
#include "model/layer/attention/kernels.h"
#include "model/run.h"
#include "trail/trail_comparison.h"

namespace dodona::trail {
namespace {

const std::string folder = DODONA_SOURCE_DIR "/tests/golden/_layers/h100/";

/// The step that the trail is of.
model::LayerRequest request_of(const TrailReference& reference) {
  const io::Json& setting = reference.setting();
  const std::string where = reference.path();
  model::LayerRequest request{.config = model::preset("r1")};
  request.setting.layer = io::get_int(setting, "layer", where);
  request.setting.fused_shared = setting.at("fused_shared_expert").get<bool>();
  request.setting.backend = io::get_string(setting, "backend", where);
  request.setting.experts = io::get_string(setting, "experts", where);
  request.lengths = io::get_ints(setting, "kv_len", where);
  if (io::find_field(setting, "new_tokens", where) != nullptr) {
    request.forward = model::Forward::extend;
    request.new_tokens = io::get_ints(setting, "new_tokens", where);
  }
  request.exec.mode = Mode::hopper;
  return request;
}

bool has_preset() {
  const auto& names = model::preset_names();
  return std::find(names.begin(), names.end(), "r1") != names.end();
}

void replays(const std::string& file, std::int64_t outputs) {
  const TrailReference reference = TrailReference::open(folder + file);
  const model::LayerRequest request = request_of(reference);
  ASSERT_EQ(model::setting_json(request), reference.setting());
  model::LayerRun layer(request);
  for (const char* name : {"hidden", "residual"}) layer.replace_input(name, reference.input(name), reference.path());
  TrailComparison comparison(reference, DType::bf16);
  layer.run(comparison.observer());
  comparison.finish();
  EXPECT_FALSE(comparison.difference()) << file << ": " << comparison.difference()->name;
  EXPECT_EQ(comparison.compared(), outputs);
  EXPECT_TRUE(comparison.absent().empty());
}

TEST(Replay, ThreeDecodeLayersInARowGiveAnH100sBits) {
  if (!has_preset()) GTEST_SKIP() << "there is no preset r1";
  replays("r1_fp8_decode_b1_layer3.jsonl", 28);
  replays("r1_fp8_decode_b1_layer4.safetensors", 28);
  replays("r1_fp8_decode_b1_layer5.safetensors", 28);
}

/// A hundred experts of 44 MB, twice: these take 8 GB.
bool has_room() {
  const char* const asked = std::getenv("DODONA_TEST_LARGE");
  return has_preset() && asked != nullptr && std::string(asked) == "1";
}

TEST(Replay, SixteenRequestsGiveAnH100sBits) {
  if (!has_room()) GTEST_SKIP() << "takes 8 GB: DODONA_TEST_LARGE=1 asks for it";
  replays("r1_fp8_decode_b16.jsonl", 28);
  replays("r1_fp8_decode_b16_fused_shared_expert.jsonl", 24);
}

TEST(Replay, APromptOfSixteenTokensGivesAnH100sBits) {
  if (!has_room()) GTEST_SKIP() << "takes 8 GB: DODONA_TEST_LARGE=1 asks for it";
  replays("r1_fp8_prefill_16.jsonl", 28);
}

/// The replay can fail: one expert backend for another gives other bits, and the first op that differs is named.
TEST(Replay, AnotherBackendOfTheExpertsIsNamedAsTheFirstThatDiffers) {
  if (!has_preset()) GTEST_SKIP() << "there is no preset r1";
  const TrailReference reference = TrailReference::open(folder + "r1_fp8_decode_b1_layer3.jsonl");
  model::LayerRequest request = request_of(reference);
  request.setting.experts = "cutlass";
  model::LayerRun layer(request);
  TrailComparison comparison(reference, DType::bf16);
  layer.run(comparison.observer());
  ASSERT_TRUE(comparison.difference());
  EXPECT_EQ(comparison.difference()->name.find("self.topk()"), 0u) << comparison.difference()->name;
}

}  // namespace
}  // namespace dodona::trail
