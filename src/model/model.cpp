#include "model/model.h"

#include <future>
#include <string>
#include <utility>

#include "dodona/error.h"

namespace dodona::model {

std::vector<PagedKvCache> Model::make_caches(std::span<const std::int64_t> capacities, std::uint64_t page_seed) const {
  std::vector<PagedKvCache> caches;
  for (std::int64_t layer = 0; layer < source_->config().num_hidden_layers; ++layer)
    caches.emplace_back(source_->config(), activation_type(setting_.rounding), capacities, page_seed);
  return caches;
}

LayerWeights Model::load(std::int64_t layer) const {
  LayerSetting setting = setting_;
  setting.layer = layer;
  setting.fused_shared = setting.fused_shared && source_->config().is_moe_layer(layer);
  Exec exec = exec_;
  exec.tracer = nullptr;  // another thread's calls
  source_->prefetch(layer);
  return {*source_, setting, exec};
}

LayerState Model::run(const Batch& batch, const Tensor& embeddings, std::span<PagedKvCache> caches, const Hooks& hooks) const {
  const std::int64_t layers = source_->config().num_hidden_layers;
  if (static_cast<std::int64_t>(caches.size()) != layers)
    throw Error(ErrorCode::bad_shape, "", "caches",
                "are " + std::to_string(caches.size()) + ", expected " + std::to_string(layers) + ", one for each layer");
  const auto ahead = [&](std::int64_t layer) { return std::async(std::launch::async, [this, layer] { return load(layer); }); };
  LayerState state{embeddings, {}};
  std::future<LayerWeights> next = ahead(0);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    {
      LayerWeights weights = next.get();
      if (layer + 1 < layers) next = ahead(layer + 1);
      Trace trace = layer_trace(weights, batch, exec_);
      if (hooks.before) hooks.before(layer, trace);
      state = run_layer(weights, batch, state, caches[static_cast<std::size_t>(layer)], trace);
      if (hooks.after) hooks.after(layer, state, trace);
    }
    source_->release(layer);
  }
  return state;
}

}  // namespace dodona::model
