// Shards: parts of tensors from either source, sizes in the book, and sums over parts that give the whole.
#include "model/weights/shard.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/random.h"
#include "helpers.h"
#include "model/layer/attention/attention.h"
#include "model/layer/decoder.h"
#include "model/layer/mlp.h"
#include "model/weights/checkpoint_writer.h"
#include "model/weights/synthetic.h"
#include "model/weights/tensor_list.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

using testing::bytes;
using testing::expect_error;
using testing::TempFolder;

constexpr std::uint64_t seed = 7;

/// Rank `index` of `count`, in everything.
Shard part(std::int64_t index, std::int64_t count) {
  const Share share{index, count};
  return {share, share, share, share};
}

/// With all experts: those that a shard leaves out are nowhere in it.
Shard without_experts(Shard shard) {
  shard.experts = {};
  return shard;
}

std::vector<TensorInfo> tensors_of_layers(const ModelConfig& config, const Shard& shard = {}) {
  std::vector<TensorInfo> all = outer_tensors(config, shard);
  for (const std::int64_t layer : {0, 1})
    for (TensorInfo& info : layer_tensors(config, layer, shard)) all.push_back(std::move(info));
  return all;
}

/// The elements of `whole` that `info` describes.
Tensor slice_of(const Tensor& whole, const TensorInfo& info) {
  return info.split < 0 ? whole : whole.slice(info.split, info.begin, info.begin + info.shape[info.split]).clone();
}

/// Every part that a source gives is the slice of the whole; all parts together are the whole.
void expect_slices(const WeightSource& whole, const std::function<std::unique_ptr<WeightSource>(const Shard&)>& source,
                   std::int64_t count) {
  std::map<std::string, std::int64_t> elements;
  int split = 0;
  for (std::int64_t index = 0; index < count; ++index) {
    const auto mine = source(part(index, count));
    for (const TensorInfo& info : tensors_of_layers(whole.config(), mine->shard())) {
      const Tensor found = mine->get(info.name), expected = slice_of(whole.get(info.name), info);
      ASSERT_EQ(to_string(found.shape()), to_string(info.shape)) << info.name;
      EXPECT_TRUE(found.contiguous()) << info.name;
      EXPECT_TRUE(bytes(found) == bytes(expected)) << info.name << " part " << index;
      std::vector<std::byte> room(static_cast<std::size_t>(info.bytes()));
      mine->read(info.name, room);
      EXPECT_TRUE(std::equal(room.begin(), room.end(), found.as<std::byte>())) << info.name;
      elements[info.name] += found.elements();
      split += info.split >= 0 ? 1 : 0;
    }
    mine->check_layer(1);
  }
  for (const TensorInfo& info : tensors_of_layers(whole.config())) {
    const auto once = info.split < 0 && find_tensor_info(whole.config(), info.name, without_experts(part(0, count)))->split < 0;
    EXPECT_EQ(elements[info.name], (once ? count : 1) * element_count(info.shape)) << info.name;
  }
  EXPECT_GT(split, 100);
}

TEST(Shards, SyntheticPartsAreSlicesOfTheWhole) {
  const ModelConfig config = preset("tiny");
  for (const std::int64_t count : {2, 4})
    expect_slices(
        *synthetic_weights(config, seed, {.threads = 1}),
        [&](const Shard& shard) { return synthetic_weights(config, seed, {.threads = 2}, without_experts(shard)); }, count);
}

TEST(Shards, PartsOfACheckpointAreSlicesOfTheWhole) {
  const TempFolder folder;
  const ModelConfig config = preset("tiny");
  write_checkpoint(folder.file("model"), config, {.first_layer = 0, .last_layer = 1, .outer = true, .seed = seed}, {});
  const auto whole = open_checkpoint(folder.file("model"), config);
  for (const std::int64_t count : {2, 4})
    expect_slices(
        *whole, [&](const Shard& shard) { return open_checkpoint(folder.file("model"), config, without_experts(shard)); }, count);
}

TEST(Shards, APartIsMadeWithoutTheWhole) {
  // 2^50 bytes in all, far beyond any memory: rows and columns in the middle of them.
  TensorInfo info{"model.layers.1.mlp.experts.3.up_proj.weight", {DType::u8}, {2, 1 << 20}, false, 1 << 21};
  info.form = WeightForm::nvfp4;
  info.whole = {std::int64_t{1} << 30, 1 << 20};
  info.split = 0;
  info.begin = (std::int64_t{1} << 29) + 1;
  std::vector<std::byte> rows(2 << 20), column(3);
  synthesize(info, seed, {}, rows);
  const Stream stream(seed, info.name);
  const auto byte_at = [&](std::uint64_t i) { return static_cast<std::byte>(word(stream, i / 4) >> (i % 4 * 8)); };
  const std::uint64_t first = static_cast<std::uint64_t>(info.begin) << 20;
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{77777}, rows.size() - 1})
    EXPECT_EQ(rows[i], byte_at(first + i)) << i;
  info.shape = {1, 3};
  info.whole = {1, std::int64_t{1} << 50};
  info.split = 1;
  info.begin = (std::int64_t{1} << 49) + 5;
  synthesize(info, seed, {}, column);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(column[i], byte_at(static_cast<std::uint64_t>(info.begin) + i)) << i;
}

TEST(Shards, FusedModulesAreTheRowsOfTheirParts) {
  const ModelConfig config = preset("tiny");
  const auto mine = synthetic_weights(config, seed, {}, part(1, 2));
  const std::vector<std::string> names{"model.layers.1.mlp.experts.9.gate_proj", "model.layers.1.mlp.experts.9.up_proj"};
  const Linear both = mine->fused(names);
  EXPECT_EQ(both.rows, config.moe_intermediate_size);  // two halves
  EXPECT_EQ(both.bytes(), both.weight.elements() + both.weight_scale.elements());
  EXPECT_TRUE(bytes(both.weight) == bytes(mine->linear(names[0]).weight) + bytes(mine->linear(names[1]).weight));
}

TEST(Shards, ExpertsOfOtherShardsAreNotThere) {
  const auto mine = synthetic_weights(preset("tiny"), seed, {}, {.experts = {1, 4}});
  EXPECT_TRUE(mine->has("model.layers.1.mlp.experts.4.up_proj.weight"));
  EXPECT_TRUE(mine->has("model.layers.1.mlp.experts.7.up_proj.weight"));
  EXPECT_FALSE(mine->has("model.layers.1.mlp.experts.3.up_proj.weight"));
  expect_error([&] { mine->linear("model.layers.1.mlp.experts.8.up_proj"); }, ErrorCode::missing_argument, {"experts.8", "experts 2 of 4"});
  EXPECT_EQ(layer_tensors(preset("tiny"), 1).size() - layer_tensors(preset("tiny"), 1, mine->shard()).size(), 12u * 3 * 4);
}

TEST(Shards, TheBookHasTheSizesOfTheShard) {
  const ModelConfig config = preset("r1-nvfp4");
  const ShapeBook whole(config, Phase::decode, {.batch = 4}), mine(config, Phase::decode, {.batch = 4, .shard = part(3, 8)});
  const auto shape = [](const ShapeBook& book, Part where, const char* op, const char* label, const char* note = "") {
    return to_string(book.at(where, op, note).shape(label));
  };
  EXPECT_EQ(shape(whole, Part::attention, "self.q_b_proj()", "output"), "[4, 24576]");
  EXPECT_EQ(shape(mine, Part::attention, "self.q_b_proj()", "output"), "[4, 3072]");
  EXPECT_EQ(shape(mine, Part::attention, "self.o_proj()", "input"), "[4, 2048]");
  EXPECT_EQ(shape(mine, Part::attention, "self.o_proj()", "output"), "[4, 7168]");
  EXPECT_EQ(shape(mine, Part::attention, "bmm_fp8()", "w_kc", "q_nope * w_kc"), "[16, 128, 512]");
  EXPECT_EQ(shape(mine, Part::attention, "self.fused_qkv_a_proj_with_mqa()", "output"), "[4, 2112]");
  EXPECT_EQ(shape(mine, Part::mlp_dense, "self.down_proj()", "input"), "[4, 2304]");
  EXPECT_EQ(shape(mine, Part::shared_experts, "self.act_fn()", "output"), "[4, 256]");
  EXPECT_EQ(shape(mine, Part::experts_cutlass, "cutlass_fp4_group_mm", "output", "gate_up"), "[32, 512]");
  EXPECT_EQ(shape(mine, Part::mlp_moe, "self.gate()", "output"), "[4, 256]");
  EXPECT_EQ(shape(mine, Part::model, "self.lm_head()", "output"), "[4, 16160]");
}

TEST(Shards, WhatCannotBeSplitSoIsOneClearError) {
  const ModelConfig config = preset("tiny");  // 4 heads, 16 experts, intermediate sizes 512 and 128, vocabulary 512
  const auto refuses = [&](const Shard& shard, const std::vector<std::string>& parts) {
    expect_error([&] { synthetic_weights(config, seed, {}, shard); }, ErrorCode::bad_value, parts);
    expect_error([&] { ShapeBook(config, Phase::decode, {.shard = shard}); }, ErrorCode::bad_value, parts);
  };
  refuses({.heads = {0, 3}}, {"heads of tiny do not divide into 3 parts", "num_attention_heads is 4"});
  refuses({.heads = {2, 2}}, {"heads part 2", "expected 0 to 1"});
  refuses({.heads = {0, 0}}, {"heads are split into 0 parts"});
  refuses({.experts = {0, 5}}, {"experts of tiny do not divide into 5", "16"});
  refuses({.intermediate = {-1, 2}}, {"intermediate sizes part -1"});
  refuses({.intermediate = {0, 256}}, {"intermediate", "moe_intermediate_size is 128"});
  refuses({.vocabulary = {0, 1024}}, {"vocabulary rows", "vocab_size is 512"});
  // Columns of down_proj are quantized in groups of 16.
  refuses({.intermediate = {0, 16}}, {"tiny, intermediate 1 of 16", "moe_intermediate_size is 8", "multiple of 32"});
}

TEST(Shards, ALayerOfAShardIsPlannedButNotRun) {
  const ModelConfig config = preset("tiny");
  const std::vector<std::int64_t> lengths{5};
  const auto source = synthetic_weights(config, seed, {}, part(0, 2));
  LayerWeights weights(*source, {.layer = 0}, {});
  PagedKvCache cache(config, DType::bf16, lengths);
  Batch batch = decode_batch(lengths);
  cache.place(batch);
  Trace trace = layer_trace(weights, batch, {});
  const Tensor x(DType::bf16, {1, config.hidden_size});
  expect_error([&] { run_layer(weights, batch, {x, {}}, cache, trace); }, ErrorCode::unsupported, {"shard", "tiny, heads 1 of 2"});
  const auto sizes = planned_weights(config, part(0, 2));
  LayerWeights planned(*sizes, {.layer = 0}, {});
  Trace plan = layer_trace(planned, batch, {}, Trace::Bodies::leave_out);
  run_layer(planned, batch, {x, {}}, cache, plan);
  for (const OpRecord& record : plan.records())
    if (record.op == "self.o_proj()") EXPECT_EQ(record.shapes, "[B, 256] -> [B, 256]");
}

/// What one part of a layer gives for x, with roundings off.
Tensor partial(const ModelConfig& config, std::int64_t layer, const Shard& shard, const Tensor& x) {
  const Exec exec{.mode = Mode::golden, .threads = 1};
  const std::vector<std::int64_t> lengths{40, 3};
  const auto source = synthetic_weights(config, seed, exec, shard);
  LayerWeights weights(*source, {.layer = layer, .rounding = Rounding::off}, exec);
  PagedKvCache cache(config, DType::f32, lengths);
  cache.synthesize_history(seed, lengths, 1);
  Batch batch = decode_batch(lengths);
  cache.place(batch);
  Trace trace = layer_trace(weights, batch, exec);
  const Pass pass{weights, batch, cache, trace, choose(weights, batch)};
  const Tensor attended = self_attn(pass, x);
  const Tensor out = dense_mlp(pass, x);
  Tensor both(DType::f32, {2, 2, config.hidden_size});
  copy(attended, both.slice(0, 0, 1).reshape(attended.shape()));
  copy(out, both.slice(0, 1, 2).reshape(out.shape()));
  return both;
}

/// Sizes whose halves every form takes.
ModelConfig halvable(const QuantScheme& scheme) {
  ModelConfig config = preset("tiny-fp8");
  config.moe_intermediate_size = 256;
  return with_scheme(config, scheme);
}

void expect_sum(const ModelConfig& config, std::int64_t count) {
  Tensor x(DType::f32, {2, config.hidden_size});
  fill_normal(Stream(seed, "x"), 0, {x.as<float>(), static_cast<std::size_t>(x.elements())});
  const Tensor whole = partial(config, 0, {}, x);
  std::vector<double> sum(static_cast<std::size_t>(whole.elements()), 0.0);
  for (std::int64_t index = 0; index < count; ++index) {
    const Tensor one = partial(config, 0, without_experts(part(index, count)), x);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(one.as<float>()[i]);
  }
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    largest = std::max(largest, std::fabs(sum[i]));
    worst = std::max(worst, std::fabs(sum[i] - static_cast<double>(whole.as<float>()[i])));
  }
  EXPECT_GT(largest, 0.1) << config.name;
  EXPECT_LE(worst, 1e-5 * largest) << config.name;
}

TEST(Shards, PartsOfALayerAddUpToTheWhole) {
  expect_sum(preset("tiny"), 4);
  for (const QuantScheme& scheme : quant_schemes()) expect_sum(halvable(scheme), 2);
}

/// Whose slices are no columns of its shape: of tiles.
TEST(Shards, PartsOfTilesAreTheSameFromEitherSource) {
  const ModelConfig config = halvable(scheme_named("qserve-group"));
  const TempFolder folder;
  write_checkpoint(folder.file("model"), config, {.first_layer = 0, .last_layer = 0, .seed = seed}, {});
  for (const std::int64_t index : {0, 1}) {
    const Shard shard = without_experts(part(index, 2));
    const auto made = synthetic_weights(config, seed, {}, shard), stored = open_checkpoint(folder.file("model"), config, shard);
    for (const TensorInfo& info : layer_tensors(config, 0, shard)) {
      const Tensor found = stored->get(info.name);
      ASSERT_EQ(to_string(found.shape()), to_string(info.shape)) << info.name;
      EXPECT_TRUE(bytes(found) == bytes(made->get(info.name))) << info.name;
      std::vector<std::byte> room(static_cast<std::size_t>(info.bytes()));
      stored->read(info.name, room);
      EXPECT_TRUE(std::equal(room.begin(), room.end(), found.as<std::byte>())) << info.name;
    }
  }
}

}  // namespace
}  // namespace dodona::model
