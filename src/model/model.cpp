#include "model/model.h"

#include <algorithm>
#include <exception>
#include <future>
#include <string>
#include <utility>

#include "core/threads.h"
#include "dodona/error.h"
#include "io/stopwatch.h"
#include "model/layer/experts/experts.h"
#include "model/layer/kernel_use.h"

namespace dodona::model {
LayerTiming timing_of(std::int64_t layer, const LayerWeights& weights, const Trace& trace, double loading) {
  LayerTiming timing{.layer = layer, .making = loading + weights.touching_seconds()};
  for (const OpRecord& record : trace.records())
    if (!record.group) timing.arithmetic += record.seconds, timing.work += record.work;
  return timing;
}

Exec without_tracer(Exec exec) {
  exec.tracer = nullptr;
  return exec;
}

LayerSpan layers_of(const ModelConfig& config, const Share& stage) {
  const std::int64_t layers = config.num_hidden_layers, each = layers / stage.count, longer = layers % stage.count;
  const auto begin = [&](std::int64_t index) { return index * each + std::max<std::int64_t>(0, index - (stage.count - longer)); };
  return {begin(stage.index), begin(stage.index + 1)};
}

Model::Model(const WeightSource& source, const LayerSetting& setting, Exec exec, const Ranks& ranks)
    : source_(&source), setting_(setting), exec_(std::move(exec)), ranks_(ranks), mine_(layers_of(source.config(), ranks.stage)) {
  check_layers();
}

/// Every tensor of the stage: headers of files are read by all threads, and the first layer of which something is wrong is told.
void Model::check_layers() const {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(mine_.size()));
  constexpr double work = 1e6;  // of a layer: enough for threads
  parallel_for(exec_.threads, mine_.size(), work, [&](std::int64_t i) {
    try {
      const std::int64_t layer = mine_.begin + i;
      source_->check_layer(layer);
      if (source_->config().is_moe_layer(layer)) choose_experts(source_->config(), setting_of(layer));
    } catch (...) {
      failures[static_cast<std::size_t>(i)] = std::current_exception();
    }
  });
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

std::vector<PagedKvCache> Model::make_caches(std::span<const std::int64_t> capacities, std::uint64_t page_seed) const {
  std::vector<PagedKvCache> caches;
  for (std::int64_t layer = mine_.begin; layer < mine_.end; ++layer)
    caches.emplace_back(source_->config(), setting_.cache_type(), capacities, page_seed);
  return caches;
}

LayerSetting Model::setting_of(std::int64_t layer) const {
  LayerSetting setting = norms_over_layers(setting_, layer > mine_.begin, layer + 1 < mine_.end);
  setting.layer = layer;
  setting.fused_shared = setting.fused_shared && source_->config().is_moe_layer(layer);
  return setting;
}

Model::Loaded Model::load(std::int64_t layer) const {
  const io::Stopwatch clock;
  LayerWeights weights(*source_, setting_of(layer), without_tracer(exec_));
  return {std::move(weights), clock.seconds()};
}

LayerState Model::run_stage(std::int64_t first, const Batch& batch, LayerState state, std::span<PagedKvCache> caches, const Hooks& hooks,
                            std::optional<Loaded> ready) const {
  for (std::int64_t layer = first; layer < mine_.end; ++layer) {
    LayerTiming timing;
    {
      Loaded loaded = ready ? *std::exchange(ready, {}) : load(layer);
      LayerWeights& weights = loaded.weights;
      // Reading the file goes on beside the arithmetic; making weights would take the cores and the memory from it.
      std::future<void> hint;
      if (layer + 1 < mine_.end) hint = std::async(std::launch::async, [this, layer] { source_->prefetch(layer + 1); });
      Trace trace = layer_trace(weights, batch, exec_);
      if (hooks.before)
        hooks.before(layer, trace);
      else
        trace.leave_out_statistics();
      state = run_layer(weights, batch, state, caches[static_cast<std::size_t>(layer - mine_.begin)], trace, ranks_);
      if (hooks.after) hooks.after(layer, state, trace);
      timing = timing_of(layer, weights, trace, loaded.seconds);
    }
    source_->release(layer);
    if (hooks.timed) hooks.timed(timing);
  }
  return state;
}

namespace {

/// What a stage has given, on the ranks of all stages.
LayerState handed_on(RankGroup& stages, const Share& mine, std::int64_t from, const LayerState& state, const Tensor& like) {
  const std::int64_t tokens = like.size(0), hidden = like.size(1);
  const Tensor both(like.dtype(), {mine.index == from ? 2 * tokens : 0, hidden});
  if (mine.index == from) {
    copy(state.hidden, both.slice(0, 0, tokens));
    copy(state.residual, both.slice(0, tokens, 2 * tokens));
  }
  const Tensor given = stages.gather(both)[static_cast<std::size_t>(from)];
  return {given.slice(0, 0, tokens), given.slice(0, tokens, 2 * tokens)};
}

}  // namespace

LayerState Model::run(const Batch& batch, const Tensor& embeddings, std::span<PagedKvCache> caches, const Hooks& hooks) const {
  return go_on(0, batch, {embeddings, {}}, caches, hooks);
}

LayerState Model::go_on(std::int64_t first, const Batch& batch, const LayerState& begin_with, std::span<PagedKvCache> caches,
                        const Hooks& hooks) const {
  if (static_cast<std::int64_t>(caches.size()) != mine_.size())
    throw Error(ErrorCode::bad_shape, "", "caches",
                "are " + std::to_string(caches.size()) + ", expected " + std::to_string(mine_.size()) + ", one for each layer");
  const std::int64_t begin = std::max(first, mine_.begin);
  LayerState state = begin_with;
  if (ranks_.pipeline == nullptr && begin == mine_.end) return state;
  // While the stages before this one are at work, its first layer is made ready.
  std::optional<Loaded> ready;
  if (begin < mine_.end) source_->prefetch(begin), ready = load(begin);
  for (std::int64_t stage = 0; stage < ranks_.stage.count; ++stage) {
    if (stage == ranks_.stage.index) state = run_stage(begin, batch, state, caches, hooks, std::exchange(ready, {}));
    if (ranks_.pipeline != nullptr) state = handed_on(*ranks_.pipeline, ranks_.stage, stage, state, begin_with.hidden);
  }
  return state;
}

}  // namespace dodona::model
