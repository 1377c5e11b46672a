#include "model/model.h"

#include <chrono>
#include <future>
#include <string>
#include <utility>

#include "dodona/error.h"

namespace dodona::model {
namespace {

double since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::vector<PagedKvCache> Model::make_caches(std::span<const std::int64_t> capacities, std::uint64_t page_seed) const {
  std::vector<PagedKvCache> caches;
  for (std::int64_t layer = 0; layer < source_->config().num_hidden_layers; ++layer)
    caches.emplace_back(source_->config(), setting_.cache_type(), capacities, page_seed);
  return caches;
}

Model::Loaded Model::load(std::int64_t layer) const {
  const auto begin = std::chrono::steady_clock::now();
  LayerSetting setting = setting_;
  setting.layer = layer;
  setting.fused_shared = setting.fused_shared && source_->config().is_moe_layer(layer);
  Exec exec = exec_;
  exec.tracer = nullptr;  // another thread's calls
  source_->prefetch(layer);
  LayerWeights weights(*source_, setting, exec);
  return {std::move(weights), since(begin)};
}

LayerState Model::run(const Batch& batch, const Tensor& embeddings, std::span<PagedKvCache> caches, const Hooks& hooks) const {
  return go_on(0, batch, {embeddings, {}}, caches, hooks);
}

LayerState Model::go_on(std::int64_t first, const Batch& batch, const LayerState& begin_with, std::span<PagedKvCache> caches,
                        const Hooks& hooks) const {
  const std::int64_t layers = source_->config().num_hidden_layers;
  if (static_cast<std::int64_t>(caches.size()) != layers)
    throw Error(ErrorCode::bad_shape, "", "caches",
                "are " + std::to_string(caches.size()) + ", expected " + std::to_string(layers) + ", one for each layer");
  const auto ahead = [&](std::int64_t layer) { return std::async(std::launch::async, [this, layer] { return load(layer); }); };
  LayerState state = begin_with;
  if (first == layers) return state;
  std::future<Loaded> next = ahead(first);
  for (std::int64_t layer = first; layer < layers; ++layer) {
    const auto begin = std::chrono::steady_clock::now();
    LayerTiming timing{.layer = layer};
    {
      Loaded loaded = next.get();
      LayerWeights& weights = loaded.weights;
      if (layer + 1 < layers) next = ahead(layer + 1);
      Trace trace = layer_trace(weights, batch, exec_);
      if (hooks.before)
        hooks.before(layer, trace);
      else
        trace.leave_out_statistics();
      state = run_layer(weights, batch, state, caches[static_cast<std::size_t>(layer)], trace);
      if (hooks.after) hooks.after(layer, state, trace);
      timing.making = loaded.seconds;
      for (const OpRecord& record : trace.records())
        if (!record.group) timing.arithmetic += record.seconds, timing.work += record.work;
    }
    source_->release(layer);
    timing.waiting = since(begin) - timing.arithmetic;
    if (hooks.timed) hooks.timed(timing);
  }
  return state;
}

}  // namespace dodona::model
