// What inspection says of checkpoints that are whole, and of ones with one thing wrong.
#include "model/weights/inspect.h"

#include <unistd.h>

#include <cmath>

#include "helpers.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/weights/checkpoint_writer.h"
#include "model/weights/weights.h"

namespace dodona::model {
namespace {

namespace fs = std::filesystem;
using testing::expect_error;
using testing::TempFolder;

constexpr const char* shard = "model-00001-of-00001.safetensors";
constexpr const char* other = "model-00002-of-00002.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";
const std::string q_b = "model.layers.1.self_attn.q_b_proj.weight";

/// Layers 0 and 1 of tiny and what lies outside of layers.
class Inspect : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    original_ = std::make_unique<TempFolder>();
    write_checkpoint(original_->file("model"), preset("tiny"), {.first_layer = 0, .last_layer = 1, .outer = true, .seed = 7}, {});
  }
  static void TearDownTestSuite() { original_.reset(); }
  Inspect() { fs::copy(original_->file("model"), path(), fs::copy_options::recursive); }

  std::string path() const { return folder_.file("model"); }
  std::string file(const std::string& name) const { return path() + "/" + name; }
  Inspection inspect(std::int64_t last = 1) const { return inspect_checkpoint(path(), load_config(path()), 0, last); }
  void rewrite(const std::function<void(io::NamedTensors&)>& change) const {
    const auto old = io::SafetensorsFile::open(file(shard), io::Access::read);
    io::NamedTensors tensors;
    for (const auto& entry : old.entries()) tensors.emplace_back(entry.name, old.tensor(entry));
    change(tensors);
    io::write_safetensors(file(shard), tensors);
  }
  /// The one finding, as one line.
  std::string only() const {
    const Inspection found = inspect();
    EXPECT_FALSE(found.fits());
    if (found.tensors.size() != 1) return std::to_string(found.tensors.size()) + " findings";
    const InspectedTensor& t = found.tensors.front();
    return std::string(name(t.finding)) + "|" + t.name + "|" + t.expected + "|" + t.found;
  }

  inline static std::unique_ptr<TempFolder> original_;
  TempFolder folder_;
};

TEST_F(Inspect, AWholeCheckpointFits) {
  const Inspection found = inspect();
  EXPECT_TRUE(found.fits());
  ASSERT_EQ(found.parts.size(), 3U);
  EXPECT_EQ(found.parts[1].title, "layer 0 (dense)");
  EXPECT_EQ(found.parts[2].title, "layer 1 (MoE)");
  // o_proj and three of each of 16 experts and the shared one; q_a, q_b, kv_a, kv_b and the router.
  EXPECT_EQ(found.parts[2].forms, (std::map<std::string, std::int64_t>{{"bf16", 5}, {"nvfp4", 52}}));
  EXPECT_EQ(found.parts[2].present, found.parts[2].expected);
  EXPECT_EQ(found.files, 1);
}

TEST_F(Inspect, AMissingTensorIsToldWithWhatWasExpected) {
  rewrite([](auto& tensors) { std::erase_if(tensors, [](const auto& t) { return t.first == q_b; }); });
  EXPECT_EQ(only(), "missing|" + q_b + "|BF16 [768, 192]|nothing of that name");
}
/// No reader looks anywhere but where the index says.
TEST_F(Inspect, ATensorThatTheIndexPlacesElsewhereIsMissing) {
  io::write_safetensors(file(other), {{"model.layers.3.shared_head.head.weight", Tensor(DType::f32, {3})}});
  const io::Json whole = io::read_json(file(index_file));
  const auto with_map = [&](const std::function<void(io::Json&)>& change) {
    io::Json json = whole;
    json["weight_map"]["model.layers.3.shared_head.head.weight"] = other;
    change(json["weight_map"]);
    std::ofstream(file(index_file)) << io::json_text(json);
  };
  with_map([](io::Json&) {});
  EXPECT_TRUE(inspect().fits());
  with_map([](io::Json& map) { map[q_b] = other; });
  EXPECT_EQ(only(), "missing|" + q_b + "|BF16 [768, 192]|nothing of that name");
  EXPECT_EQ(inspect().tensors.at(0).file, other);
  expect_error([&] { open_checkpoint(path(), preset("tiny"))->check_layer(1); }, ErrorCode::bad_file, {q_b, other, "does not hold it"});
  with_map([](io::Json& map) { map.erase(q_b); });
  EXPECT_EQ(only(), "missing|" + q_b + "|BF16 [768, 192]|a tensor that model.safetensors.index.json does not list");
  EXPECT_EQ(inspect().tensors.at(0).file, shard);
  with_map([](io::Json& map) { map["model.layers.1.self_attn.q_c_proj.bias"] = other; });
  EXPECT_EQ(only(), "unknown|model.layers.1.self_attn.q_c_proj.bias||nothing of that name");
}
TEST_F(Inspect, AMisnamedTensorIsToldWithTheNameThatIsThere) {
  rewrite([](auto& tensors) {
    for (auto& t : tensors)
      if (t.first == q_b) t.first = "model.layers.1.self_attn.q_b_prj.weight";
  });
  EXPECT_EQ(only(), "misnamed|" + q_b + "|BF16 [768, 192]|model.layers.1.self_attn.q_b_prj.weight");
}
TEST_F(Inspect, AMisshapedTensorIsToldWithBothShapes) {
  rewrite([](auto& tensors) {
    for (auto& t : tensors)
      if (t.first == q_b) t.second = t.second.transpose(0, 1).clone();
  });
  EXPECT_EQ(only(), "misshaped|" + q_b + "|BF16 [768, 192]|BF16 [192, 768]");
}
/// By who looks at them.
TEST_F(Inspect, ValuesThatNothingCanUseAreToldWithTheirPlace) {
  const std::string up = "model.layers.1.mlp.experts.3.up_proj", norm = "model.layers.0.input_layernorm.weight";
  const auto look = [&] { return inspect_checkpoint(path(), load_config(path()), 0, 1, {.wanted = true}); };
  EXPECT_TRUE(look().fits());
  rewrite([&](auto& tensors) {
    for (auto& [each, tensor] : tensors) {
      if (each != up + ".weight_scale" && each != up + ".weight_scale_2" && each != norm) continue;
      tensor = tensor.clone();
      if (each == norm) quant::set(tensor, 7, -INFINITY), quant::set(tensor, 200, NAN);
      if (each == up + ".weight_scale") tensor.template as<std::uint8_t>()[17] = 0xFF;
      if (each == up + ".weight_scale_2") *tensor.template as<float>() = 0;
    }
  });
  EXPECT_TRUE(inspect().fits());
  const Inspection found = look();
  std::string text;
  for (const InspectedTensor& t : found.tensors) text += t.name + "|" + t.expected + "|" + t.found + "\n";
  EXPECT_EQ(text, norm + "|finite numbers|-inf at element 7\n" + up + ".weight_scale|finite numbers|-nan at element 17\n" + up +
                      ".weight_scale_2|a positive number|0\n");
  EXPECT_EQ(found.parts[1].findings.at(Finding::unusable), 1);
  EXPECT_EQ(found.parts[2].findings.at(Finding::unusable), 2);
  // What has another shape is not read as if it had not.
  rewrite([&](auto& tensors) {
    for (auto& [each, tensor] : tensors)
      if (each == norm) tensor = tensor.slice(0, 0, 8).clone();
  });
  EXPECT_EQ(look().parts[1].findings, (std::map<Finding, std::int64_t>{{Finding::misshaped, 1}}));
}
TEST_F(Inspect, AnUnknownTensorIsToldAndCopiesOfTheHeadAreNot) {
  rewrite([](auto& tensors) {
    tensors.emplace_back("model.layers.1.self_attn.q_c_proj.bias", Tensor(DType::f32, {3}));
    tensors.emplace_back("model.layers.3.shared_head.head.weight", Tensor(DType::f32, {3}));
  });
  EXPECT_EQ(only(), "unknown|model.layers.1.self_attn.q_c_proj.bias||F32 [3]");
  EXPECT_EQ(inspect().spare, 1);
}
TEST_F(Inspect, LayersThatAreNotThereAreMissing) {
  const Inspection found = inspect(2);
  EXPECT_EQ(found.parts[3].present, 0);
  EXPECT_EQ(found.parts[3].findings.at(Finding::missing), found.parts[3].expected);
}
TEST_F(Inspect, FilesThatCannotBeReadAreNamed) {
  std::ofstream(file("model-00002.safetensors.incomplete")) << "x";
  ASSERT_EQ(::truncate(file(shard).c_str(), static_cast<off_t>(fs::file_size(file(shard)) - 1000)), 0);
  const Inspection found = inspect();
  ASSERT_EQ(found.unreadable.size(), 1U);
  EXPECT_NE(found.unreadable[0].find("the file has only"), std::string::npos) << found.unreadable[0];
  // What the index places there is not told to be missing, one by one.
  const auto unread = [&](const Inspection& of) {
    EXPECT_TRUE(of.tensors.empty());
    for (const InspectedPart& part : of.parts)
      EXPECT_EQ(part.findings, (std::map<Finding, std::int64_t>{{Finding::unread, part.expected}})) << part.title;
  };
  unread(found);
  EXPECT_EQ(found.unfinished, std::vector<std::string>{"model-00002.safetensors.incomplete"});
  std::ofstream(file(shard)) << "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
  EXPECT_NE(inspect().unreadable.at(0).find("Git LFS pointer"), std::string::npos);
  fs::remove(file(shard));
  EXPECT_NE(inspect().unreadable.at(0).find("not in the folder"), std::string::npos);
  unread(inspect());
  expect_error([&] { open_checkpoint(path(), preset("tiny")); }, ErrorCode::bad_file, {"no such file", "interrupted"});
}

TEST_F(Inspect, AFileThatChangesWhileItIsMappedIsRefusedWhereItIsRead) {
  const auto cut = open_checkpoint(path(), preset("tiny"));
  cut->get(q_b);
  ASSERT_EQ(::truncate(file(shard).c_str(), static_cast<off_t>(fs::file_size(file(shard)) - 1)), 0);
  expect_error([&] { cut->get(q_b); }, ErrorCode::bad_file, {q_b, shard, "changed while it was in use", "bytes"});
  fs::copy_file(original_->file("model/") + shard, file(shard), fs::copy_options::overwrite_existing);
  const auto replaced = open_checkpoint(path(), preset("tiny"));
  replaced->get(q_b);
  fs::copy_file(file(shard), file("other"));
  fs::rename(file("other"), file(shard));
  expect_error([&] { replaced->get(q_b); }, ErrorCode::bad_file, {q_b, "was replaced by another file"});
}

}  // namespace
}  // namespace dodona::model
