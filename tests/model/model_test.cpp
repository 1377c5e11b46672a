// The walk through all layers: the bits of layers run one by one, and two layers' weights in memory at most.
#include "model/model.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "core/random.h"
#include "helpers.h"
#include "model/weights/checkpoint_writer.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

using testing::bytes;
using testing::expect_error;
using testing::TempFolder;

constexpr std::uint64_t seed = 7;
const std::vector<std::int64_t> lengths{40, 1, 9};

/// Six layers of tiny, the first dense.
ModelConfig six_layers() {
  ModelConfig config = preset("tiny");
  config.num_hidden_layers = 6;
  config.quant.exclude = {"lm_head", "*.mlp.gate", "*.self_attn.q_*", "*.self_attn.kv_*", "model.layers.6*"};
  config.validate();
  return config;
}

Tensor embeddings(const ModelConfig& config) {
  Tensor tensor(DType::bf16, {3, config.hidden_size});
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  fill_normal(Stream(seed, "hidden"), 0, values);
  quant::from_f32(DType::bf16, values.data(), tensor.data(), tensor.elements());
  return tensor;
}

std::vector<PagedKvCache> with_history(std::vector<PagedKvCache> caches) {
  for (PagedKvCache& cache : caches) cache.synthesize_history(seed, lengths, 1);
  return caches;
}

Batch step_of(const PagedKvCache& cache) {
  Batch batch = decode_batch(lengths);
  cache.place(batch);
  return batch;
}

std::string output_bytes(const LayerState& state) {
  return bytes(state.hidden) + bytes(state.residual);
}

TEST(Model, GivesTheBitsOfItsLayersRunOneByOne) {
  const Exec exec{.mode = Mode::fast, .threads = 2};
  for (const bool fused_shared : {false, true}) {
    const auto source = synthetic_weights(six_layers(), seed, exec);
    const Model model(*source, {.fused_shared = fused_shared}, exec);
    std::vector<PagedKvCache> caches = with_history(model.make_caches(lengths)), alone = with_history(model.make_caches(lengths));
    const Batch batch = step_of(caches[0]);
    std::vector<std::string> outputs;
    const LayerState last =
        model.run(batch, embeddings(source->config()), caches,
                  {.after = [&](std::int64_t, const LayerState& state, const Trace&) { outputs.push_back(output_bytes(state)); }});
    LayerState state{embeddings(source->config()), {}};
    for (std::int64_t layer = 0; layer < 6; ++layer) {
      LayerWeights weights(*source, {.layer = layer, .fused_shared = fused_shared && layer > 0}, exec);
      Trace trace = layer_trace(weights, batch, exec);
      state = run_layer(weights, batch, state, alone[static_cast<std::size_t>(layer)], trace);
      EXPECT_TRUE(output_bytes(state) == outputs.at(static_cast<std::size_t>(layer))) << "layer " << layer;
      EXPECT_TRUE(bytes(caches[static_cast<std::size_t>(layer)].buffer()) == bytes(alone[static_cast<std::size_t>(layer)].buffer()));
    }
    EXPECT_TRUE(output_bytes(state) == output_bytes(last));
  }
}

TEST(Model, StatisticsAreMadeForThoseAloneWhoLookIntoATrace) {
  const Exec exec{.mode = Mode::fast, .threads = 1};
  const auto source = synthetic_weights(six_layers(), seed, exec);
  const Model model(*source, {}, exec);
  std::vector<PagedKvCache> caches = with_history(model.make_caches(lengths));
  const Batch batch = step_of(caches[0]);
  for (const bool looks : {true, false}) {
    std::int64_t with_rms = 0;
    Model::Hooks hooks{.after = [&](std::int64_t, const LayerState&, const Trace& trace) {
      for (const OpRecord& record : trace.records()) with_rms += record.rms > 0 ? 1 : 0;
    }};
    if (looks) hooks.before = [](std::int64_t, Trace&) {};
    model.run(batch, embeddings(source->config()), caches, hooks);
    EXPECT_EQ(with_rms > 0, looks);
  }
}

/// Counts which layers' tensors are still held by somebody, whenever one is asked for, and the hints.
class Watched final : public WeightSource {
 public:
  explicit Watched(std::unique_ptr<WeightSource> source) : WeightSource(source->config(), {}), source_(std::move(source)) {}

  std::string description() const override { return source_->description(); }
  bool has(std::string_view name) const override { return source_->has(name); }
  Tensor get(std::string_view name) const override {
    const Tensor tensor = source_->get(name);
    const std::int64_t layer = std::stoll(std::string(name.substr(std::string_view("model.layers.").size())));
    const auto held = std::make_shared<Tensor>(tensor);
    const std::shared_ptr<void> owner(held, tensor.data());
    const std::lock_guard lock(mutex_);
    held_.emplace_back(layer, held);
    std::set<std::int64_t> alive;
    for (const auto& [of, weak] : held_)
      if (!weak.expired()) alive.insert(of);
    most_ = std::max(most_, alive.size());
    return {owner, tensor.data(), tensor.dtype(), tensor.shape(), tensor.strides(), false};
  }
  void read(std::string_view name, std::span<std::byte> out) const override { source_->read(name, out); }
  void check_layer(std::int64_t layer) const override { source_->check_layer(layer); }
  void prefetch(std::int64_t layer) const override { note("prefetch " + std::to_string(layer)); }
  void release(std::int64_t layer) const override { note("release " + std::to_string(layer)); }

  std::size_t most() const { return most_; }
  bool hinted(const std::string& hint) const {
    const std::lock_guard lock(mutex_);
    return std::find(hints_.begin(), hints_.end(), hint) != hints_.end();
  }
  std::vector<std::string> hints() const { return hints_; }

 private:
  void note(std::string hint) const {
    const std::lock_guard lock(mutex_);
    hints_.push_back(std::move(hint));
  }

  std::unique_ptr<WeightSource> source_;
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<std::int64_t, std::weak_ptr<Tensor>>> held_;
  mutable std::size_t most_ = 0;
  mutable std::vector<std::string> hints_;
};

TEST(Model, HoldsTheWeightsOfOneLayerAndAsksForTheNextWhileItRuns) {
  const Exec exec{.mode = Mode::fast, .threads = 1};
  const Watched source(synthetic_weights(six_layers(), seed, exec));
  const Model model(source, {}, exec);
  std::vector<PagedKvCache> caches = with_history(model.make_caches(lengths));
  const auto next_is_asked_for = [&](std::int64_t layer, Trace&) {
    const std::string hint = "prefetch " + std::to_string(layer + 1);
    const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (layer + 1 < 6 && !source.hinted(hint) && std::chrono::steady_clock::now() < late)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (layer + 1 < 6) EXPECT_TRUE(source.hinted(hint)) << "layer " << layer;
  };
  model.run(step_of(caches[0]), embeddings(source.config()), caches, {.before = next_is_asked_for});
  EXPECT_EQ(source.most(), 1u);
  const std::vector<std::string> hints = source.hints();
  const auto at = [&](const std::string& hint) { return std::find(hints.begin(), hints.end(), hint) - hints.begin(); };
  EXPECT_EQ(hints.size(), 12u);
  for (std::int64_t layer = 0; layer < 6; ++layer) {
    if (layer >= 1) EXPECT_LT(at("prefetch " + std::to_string(layer)), at("release " + std::to_string(layer - 1)));
    if (layer >= 2) EXPECT_LT(at("release " + std::to_string(layer - 2)), at("prefetch " + std::to_string(layer)));
  }
}

TEST(Model, HintsOfACheckpointChangeNothingThatIsRead) {
  const TempFolder folder;
  const ModelConfig config = preset("tiny");
  write_checkpoint(folder.file("model"), config, {.first_layer = 0, .last_layer = 2, .seed = seed}, {});
  const auto disk = open_checkpoint(folder.file("model"), config), memory = synthetic_weights(config, seed, {});
  const std::string name = "model.layers.1.self_attn.q_b_proj.weight", expert = "model.layers.1.mlp.experts.3.up_proj.weight";
  const Tensor held = disk->get(name);
  disk->prefetch(1);
  disk->release(1);
  EXPECT_TRUE(bytes(held) == bytes(memory->get(name)));
  EXPECT_TRUE(bytes(disk->get(expert)) == bytes(memory->get(expert)));
  const Exec exec{.mode = Mode::fast, .threads = 1};
  std::vector<std::string> outputs;
  for (const WeightSource* source : {disk.get(), memory.get()}) {
    const Model model(*source, {}, exec);
    std::vector<PagedKvCache> caches = with_history(model.make_caches(lengths));
    outputs.push_back(output_bytes(model.run(step_of(caches[0]), embeddings(config), caches)));
  }
  EXPECT_TRUE(outputs[0] == outputs[1]);
}

TEST(Model, WhatIsNotThereIsToldBeforeTheWalkAndWhatFailsInItReachesTheCaller) {
  const TempFolder folder;
  const ModelConfig config = preset("tiny");
  write_checkpoint(folder.file("model"), config, {.first_layer = 0, .last_layer = 1, .seed = seed}, {});
  const auto source = open_checkpoint(folder.file("model"), config);
  expect_error([&] { Model(*source, {}, {}); }, ErrorCode::missing_argument, {"model.layers.2."});
  const auto whole = synthetic_weights(config, seed, {});
  const Model model(*whole, {}, {});
  std::vector<PagedKvCache> caches = with_history(model.make_caches(lengths));
  const Batch batch = step_of(caches[0]);
  expect_error([&] { model.run(batch, embeddings(config).slice(0, 0, 1), caches); }, ErrorCode::bad_shape, {"hidden"});
  expect_error([&] { model.run(batch, embeddings(config), {caches.data(), 2}); }, ErrorCode::bad_shape, {"caches", "are 2", "expected 3"});
}

}  // namespace
}  // namespace dodona::model
