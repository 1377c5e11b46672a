#include <unistd.h>

#include <limits>

#include "helpers.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/weights/checkpoint_index.h"
#include "model/weights/checkpoint_writer.h"
#include "model/weights/tensor_list.h"
#include "model/weights/weights.h"

namespace dodona::model {
namespace {

namespace fs = std::filesystem;
using testing::bytes;
using testing::expect_error;
using testing::TempFolder;

constexpr const char* shard = "model-00001-of-00001.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";
const std::string q_b = "model.layers.1.self_attn.q_b_proj.weight";
const std::string up = "model.layers.1.mlp.experts.3.up_proj";

/// Layer 1 of the tiny model on disk, broken by each test in its own way.
class Checkpoint : public ::testing::Test {
 protected:
  // Written once, through to the disk, and copied for each test.
  static void SetUpTestSuite() {
    original_ = std::make_unique<TempFolder>();
    write_checkpoint(original_->file("model"), preset("tiny"), {.first_layer = 1, .last_layer = 1, .seed = 7}, {});
  }
  static void TearDownTestSuite() { original_.reset(); }
  Checkpoint() { fs::copy(original_->file("model"), path(), fs::copy_options::recursive); }

  std::string path() const { return folder_.file("model"); }
  std::string file(const std::string& name) const { return path() + "/" + name; }

  /// The shard with tensors changed.
  void rewrite(const std::function<void(io::NamedTensors&)>& change) const {
    const auto old = io::SafetensorsFile::open(file(shard), io::Access::read);
    io::NamedTensors tensors;
    for (const auto& entry : old.entries()) tensors.emplace_back(entry.name, old.tensor(entry));
    change(tensors);
    io::write_safetensors(file(shard), tensors);
  }
  void rewrite_one(const std::string& name, const std::function<Tensor(const Tensor&)>& change) const {
    rewrite([&](io::NamedTensors& tensors) {
      for (auto& [each, tensor] : tensors)
        if (each == name) tensor = change(tensor);
    });
  }
  void rewrite_index(const std::function<void(io::Json&)>& change) const {
    io::Json json = io::read_json(file(index_file));
    change(json["weight_map"]);
    std::ofstream(file(index_file)) << io::json_text(json);
  }

  void check() const { open_checkpoint(path(), config)->check_layer(1); }
  void refuses(ErrorCode code, const std::vector<std::string>& parts) const {
    expect_error([&] { check(); }, code, parts);
  }

  inline static std::unique_ptr<TempFolder> original_;
  TempFolder folder_;
  const ModelConfig config = preset("tiny");
};

TEST_F(Checkpoint, HoldsBitForBitWhatTheSeedGives) {
  const ModelConfig read = load_config(path());
  const auto disk = open_checkpoint(path(), read);
  const auto memory = synthetic_weights(config, 7, {});
  disk->check_layer(1);
  for (const TensorInfo& info : layer_tensors(config, 1)) {
    const Tensor a = disk->get(info.name), b = memory->get(info.name);
    EXPECT_TRUE(a.dtype() == b.dtype() && a.shape() == b.shape() && bytes(a) == bytes(b)) << info.name;
  }
  const std::vector<std::string> parts{"model.layers.1.mlp.shared_experts.gate_proj", "model.layers.1.mlp.shared_experts.up_proj"};
  EXPECT_EQ(bytes(disk->fused(parts).weight), bytes(memory->fused(parts).weight));
}

TEST_F(Checkpoint, TensorsOutliveTheSourceAndAreNotCopied) {
  Tensor first, second;
  {
    const auto source = open_checkpoint(path(), config);
    first = source->get(q_b);
    second = source->get(q_b);
  }
  EXPECT_EQ(first.data(), second.data());
  EXPECT_FALSE(first.writable());
  EXPECT_EQ(bytes(first), bytes(synthetic_weights(config, 7, {})->get(q_b)));
}

TEST_F(Checkpoint, SmallShardsHoldTheSameTensors) {
  const std::string many = folder_.file("many");
  const CheckpointSize size = write_checkpoint(many, config, {.first_layer = 1, .last_layer = 1, .seed = 7, .shard_bytes = 200'000}, {});
  EXPECT_GT(size.shards, 5);
  const auto a = open_checkpoint(many, config), b = open_checkpoint(path(), config);
  a->check_layer(1);
  for (const TensorInfo& info : layer_tensors(config, 1)) EXPECT_EQ(bytes(a->get(info.name)), bytes(b->get(info.name))) << info.name;
}

TEST_F(Checkpoint, WritingNeedsANewOrEmptyFolderAndLeavesNothingElse) {
  expect_error([&] { write_checkpoint(path(), config, {.first_layer = 1, .last_layer = 1}, {}); }, ErrorCode::bad_file,
               {path(), "no empty folder"});
  expect_error([&] { write_checkpoint(folder_.file("no/model"), config, {}, {}); }, ErrorCode::bad_file, {"no/model"});
  expect_error([&] { write_checkpoint(folder_.file("other"), config, {.first_layer = 2, .last_layer = 4}, {}); }, ErrorCode::bad_value,
               {"layer 4"});
  EXPECT_EQ(folder_.listing(), std::vector<std::string>{"model"});
  fs::create_directory(folder_.file("empty"));
  write_checkpoint(folder_.file("empty"), config, {.first_layer = 0, .last_layer = 0}, {});
  open_checkpoint(folder_.file("empty"), config)->check_layer(0);
}

TEST_F(Checkpoint, OneFileWithoutIndexIsReadToo) {
  fs::remove(file(index_file));
  fs::rename(file(shard), file("model.safetensors"));
  check();
}

TEST_F(Checkpoint, AMissingTensorIsNamed) {
  rewrite_index([](io::Json& map) { map.erase(up + ".weight_scale"); });
  refuses(ErrorCode::missing_argument, {up + ".weight_scale", "missing"});
}
TEST_F(Checkpoint, ATensorMissingFromItsShardIsNamed) {
  rewrite([](io::NamedTensors& tensors) { std::erase_if(tensors, [](const auto& t) { return t.first == q_b; }); });
  refuses(ErrorCode::bad_file, {q_b, shard, "does not hold it"});
}
TEST_F(Checkpoint, AMisnamedTensorIsNamedWithWhatIsThereInstead) {
  rewrite_index([](io::Json& map) {
    map.erase(q_b);
    map["model.layers.1.self_attn.q_b_prj.weight"] = shard;
  });
  refuses(ErrorCode::missing_argument, {q_b, "missing", "q_b_prj"});
}
TEST_F(Checkpoint, ATransposedTensorIsNamed) {
  rewrite_one(q_b, [](const Tensor& t) { return t.transpose(0, 1); });
  refuses(ErrorCode::bad_shape, {q_b, "expected BF16 [768, 192]", "found BF16 [192, 768]", "transposed"});
}
TEST_F(Checkpoint, ATensorWithRowsCutOffIsNamed) {
  rewrite_one(up + ".weight", [](const Tensor& t) { return t.slice(0, 0, 127); });
  refuses(ErrorCode::bad_shape, {up + ".weight", "expected U8 [128, 128]", "found U8 [127, 128]"});
}
TEST_F(Checkpoint, AWrongDtypeIsNamed) {
  rewrite_one(q_b, [](const Tensor& t) { return t.bitcast(DType::f16); });
  refuses(ErrorCode::bad_dtype, {q_b, "expected BF16 [768, 192]", "found F16 [768, 192]"});
}
TEST_F(Checkpoint, ATruncatedShardIsNamed) {
  ASSERT_EQ(::truncate(file(shard).c_str(), static_cast<off_t>(fs::file_size(file(shard)) - 1000)), 0);
  refuses(ErrorCode::bad_file, {"model.layers.1.", shard, "bytes of data, the file has only"});
}
TEST_F(Checkpoint, AnAbsentShardIsNamed) {
  rewrite_index([](io::Json& map) { map["model.layers.2.input_layernorm.weight"] = "model-00002-of-00002.safetensors"; });
  refuses(ErrorCode::bad_file, {"model.layers.2.input_layernorm.weight", "'model-00002-of-00002.safetensors'", "no such file"});
}
TEST_F(Checkpoint, AShardOutsideTheFolderIsRefused) {
  rewrite_index([](io::Json& map) { map[q_b] = "../model/model-00001-of-00001.safetensors"; });
  refuses(ErrorCode::bad_file, {q_b, "no plain file name"});
}
TEST_F(Checkpoint, AnLfsPointerIsToldFromAShard) {
  std::ofstream(file(shard)) << "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
  refuses(ErrorCode::bad_file, {"model.layers.1.", shard, "Git LFS pointer"});
}
TEST_F(Checkpoint, AnIndexThatIsNoneIsRefused) {
  std::ofstream(file(index_file)) << "{\"weight_map\": [1]}";
  refuses(ErrorCode::bad_file, {index_file, "weight_map"});
  std::ofstream(file(index_file)) << "{\"weight_map\": {\"" << q_b << "\": 1}}";
  refuses(ErrorCode::bad_file, {index_file, q_b});
  std::ofstream(file(index_file)) << R"({"metadata": {"total_size": 1}})";
  refuses(ErrorCode::bad_file, {index_file, "'weight_map' is missing"});
  std::ofstream(file(index_file)) << R"({"weight_map": {"a": "s", "a": "s"}})";
  refuses(ErrorCode::bad_file, {index_file, "'a' occurs more than once"});
  std::ofstream(file(index_file)) << R"({"weight_map": {}, "weight_map": {}})";
  refuses(ErrorCode::bad_file, {index_file, "'weight_map' occurs more than once"});
  std::ofstream(file(index_file)) << R"({"metadata": {"a": 1, "a": 1}, "weight_map": {}})";
  refuses(ErrorCode::bad_file, {index_file, "'a' occurs more than once"});
  std::ofstream(file(index_file)) << R"({"weight_map": {"a": {"b": "c"}}})";
  refuses(ErrorCode::bad_file, {index_file, "the shard is no string"});
  std::ofstream(file(index_file)) << R"({"weight_map": {"a": "s"})";
  refuses(ErrorCode::bad_file, {index_file, "syntax error"});
}
TEST_F(Checkpoint, WhatStandsBesideTheMapOfAnIndexIsPassedOver) {
  const std::string map = io::json_text(io::read_json(file(index_file))["weight_map"]);
  for (const std::string beside :
       {R"("a": 1, "b": {"c": "d", "e": null, "f": 1.5, "g": -1}, "h": "i")", R"("a": [{"weight_map": {"b": [1]}}])",
        R"("metadata": {"weight_map": "a"})", R"("metadata": {"weight_map": {"a": "b"}})"}) {
    std::ofstream(file(index_file)) << "{" << beside << ", \"weight_map\": " << map << "}";
    EXPECT_NO_THROW(check()) << beside;
    std::ofstream(file(index_file)) << "{\"weight_map\": " << map << ", " << beside << "}";
    EXPECT_NO_THROW(check()) << beside;
  }
}
TEST(CheckpointIndex, FindsATensorFromWhereverItBegins) {
  for (std::size_t count = 0; count < 40; ++count) {
    CheckpointIndex index;
    for (std::size_t i = 0; i < count; ++i) index.shard_of.emplace_back(std::string(1, static_cast<char>('A' + i)), i);
    for (std::size_t near = 0; near < count + 2; ++near) {
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(index.position(index.shard_of[i].first, near), i) << count << " from " << near;
      for (const char* absent : {"", "@", "AA", "DD", "z"}) EXPECT_EQ(index.position(absent, near), CheckpointIndex::none) << absent;
    }
  }
}
TEST_F(Checkpoint, AFolderWithoutWeightsIsRefused) {
  fs::remove(file(index_file));
  refuses(ErrorCode::bad_file, {index_file, "model.safetensors"});
}
TEST_F(Checkpoint, AConfigThatContradictsTheTensorsIsRefused) {
  ModelConfig other = config;
  other.moe_intermediate_size = 256;
  expect_error([&] { open_checkpoint(path(), other)->check_layer(1); }, ErrorCode::bad_shape,
               {"expected U8 [256, 128]", "found U8 [128, 128]"});
  other = config;
  other.quant.exclude.add("*.o_proj");
  expect_error([&] { open_checkpoint(path(), other)->check_layer(1); }, ErrorCode::bad_dtype,
               {"model.layers.1.self_attn.o_proj.weight", "expected BF16 [256, 512]", "found U8 [256, 256]"});
}
TEST_F(Checkpoint, ALayerThatIsNotThereIsSaidSo) {
  expect_error([&] { open_checkpoint(path(), config)->check_layer(2); }, ErrorCode::missing_argument,
               {"model.layers.2.", "nothing of that layer"});
  expect_error([&] { open_checkpoint(path(), config)->check_layer(9); }, ErrorCode::bad_value, {"layer 9"});
}
TEST_F(Checkpoint, ScalarsOfOneElementAndMissingKvScalesAreAccepted) {
  rewrite([](io::NamedTensors& tensors) {
    std::erase_if(tensors, [](const auto& t) { return t.first.ends_with("k_scale"); });
    for (auto& [name, tensor] : tensors) {
      if (name.ends_with(".weight_scale_2")) tensor = tensor.reshape({1});
      if (!name.ends_with("v_scale")) continue;
      tensor = tensor.clone();
      *tensor.as<float>() = 0.5f;
    }
  });
  rewrite_index([](io::Json& map) { map.erase("model.layers.1.self_attn.k_proj.k_scale"); });
  const auto source = open_checkpoint(path(), config);
  source->check_layer(1);
  EXPECT_EQ(source->scalar("model.layers.1.self_attn.k_proj.k_scale"), 1.0f);
  EXPECT_EQ(source->kv_scales(1).k, 0.5f);
  EXPECT_EQ(source->kv_scales(1).v, 0.5f);
  EXPECT_GT(source->linear(up).weight_scale_2, 0.0f);
}
TEST_F(Checkpoint, ScalesThatAreNoPositiveNumberAreRefused) {
  rewrite_one(up + ".weight_scale_2", [](const Tensor& t) {
    Tensor zero = t.clone();
    *zero.as<float>() = 0;
    return zero;
  });
  expect_error([&] { open_checkpoint(path(), config)->linear(up); }, ErrorCode::bad_value, {up + ".weight_scale_2", "is 0", "positive"});
}
/// Of forms whose scales are f32 a kernel would tell, which knows neither layer nor tensor.
TEST_F(Checkpoint, ScalesThatAreNoNumbersAreNamed) {
  const ModelConfig rows = with_scheme(config, scheme_named("int8"));
  fs::remove_all(path());
  write_checkpoint(path(), rows, {.first_layer = 1, .last_layer = 1, .seed = 7}, {});
  const std::string gate = "model.layers.1.mlp.experts.3.gate_proj";
  rewrite_one(up + ".weight_scale", [](const Tensor& t) {
    Tensor wrong = t.clone();
    wrong.as<float>()[5] = std::numeric_limits<float>::quiet_NaN();
    return wrong;
  });
  const auto source = open_checkpoint(path(), rows);
  source->linear(gate);
  const std::vector<std::string> parts{up + ".weight_scale", "holds nan at element 5", "finite"};
  expect_error([&] { source->linear(up); }, ErrorCode::bad_value, parts);
  const std::vector<std::string> both{gate, up};
  expect_error([&] { source->fused(both); }, ErrorCode::bad_value, parts);
}
/// In e4m3 too, whose two codes that are no numbers no kernel tells.
TEST_F(Checkpoint, ScalesOfBlocksThatAreNoNumbersAreNamed) {
  const std::string gate = "model.layers.1.mlp.experts.3.gate_proj";
  for (const int code : {0x7F, 0xFF}) {
    rewrite_one(up + ".weight_scale", [&](const Tensor& t) {
      Tensor wrong = t.clone();
      wrong.as<std::uint8_t>()[t.elements() - 1] = static_cast<std::uint8_t>(code);
      return wrong;
    });
    const auto source = open_checkpoint(path(), config);
    source->linear(gate);
    const std::vector<std::string> parts{up + ".weight_scale'", "nan at element " + std::to_string(128 * 16 - 1), "finite"}, both{gate, up};
    expect_error([&] { source->linear(up); }, ErrorCode::bad_value, parts);
    expect_error([&] { source->fused(both); }, ErrorCode::bad_value, parts);
  }
}
TEST_F(Checkpoint, FusedScalesThatDifferAreRefused) {
  rewrite_one(up + ".weight_scale_2", [](const Tensor& t) {
    Tensor twice = t.clone();
    *twice.as<float>() *= 2;
    return twice;
  });
  const std::vector<std::string> parts{"model.layers.1.mlp.experts.3.gate_proj", up};
  expect_error([&] { open_checkpoint(path(), config)->fused(parts); }, ErrorCode::bad_value, {up, "weight_scale_2", "gate_proj"});
}

TEST(PlainCheckpoint, WithoutQuantizationEveryLinearIsBf16) {
  TempFolder folder;
  ModelConfig config = preset("tiny");
  config.quant = {};
  write_checkpoint(folder.file("model"), config, {.first_layer = 0, .last_layer = 0, .outer = true}, {});
  const ModelConfig read = load_config(folder.file("model"));
  const auto source = open_checkpoint(folder.file("model"), read);
  source->check_layer(0);
  const std::vector<std::string> parts{"model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj"};
  EXPECT_EQ(to_string(source->fused(parts).weight.shape()), "[1024, 256]");
  EXPECT_EQ(to_string(source->get("model.norm.weight").shape()), "[256]");
  EXPECT_EQ(source->kv_scales(0).k, 1.0f);
}

TEST(PlainCheckpoint, TheRecordedTinyModelLoads) {
  const std::string folder = DODONA_SOURCE_DIR "/tests/golden/_models/tiny-b";
  const ModelConfig config = load_config(folder);
  const auto source = open_checkpoint(folder, config);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) source->check_layer(layer);
  EXPECT_EQ(to_string(source->linear("model.layers.1.mlp.experts.7.down_proj").weight.shape()), "[64, 32]");
  EXPECT_EQ(to_string(source->get("model.embed_tokens.weight").shape()), "[128, 64]");
  EXPECT_EQ(config.softmax_scale(), 0.1352337788608801);
}

}  // namespace
}  // namespace dodona::model
