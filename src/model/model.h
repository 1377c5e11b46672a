// All layers of a model, one after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "model/layer/decoder.h"

namespace dodona::model {

/// What one layer took of a pass, in seconds.
struct LayerTiming {
  std::int64_t layer = 0;
  double making = 0;      ///< reading or synthesizing its weights and making them ready
  double arithmetic = 0;  ///< of the model ops
  Work work = {};         ///< that they do at least
};

/// Of a layer that has run, whose weights took `loading` to be made ready before.
LayerTiming timing_of(std::int64_t layer, const LayerWeights& weights, const Trace& trace, double loading);
/// For what is no call of a pass: weights that are made ready.
Exec without_tracer(Exec exec);

/// Layers begin ... end - 1.
struct LayerSpan {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};
/// A stage's: as many as any other's, or, of the last stages, one more. Source: sglang `get_pp_indices`.
LayerSpan layers_of(const ModelConfig& config, const Share& stage);

/// A walk through the layers of which one has weights in memory: while it runs, a checkpoint reads those of the next, and those of the one
/// behind are let go. Gives the bits of the layers run one by one.
class Model {
 public:
  /// `setting` is that of every layer, but for its number; dense layers have no shared expert to fuse. The source must outlive this, and
  /// the groups of `ranks`, which hold its other shards and stages. Throws Error for a tensor that a layer of the stage does not find, and
  /// for experts that nothing runs as asked: the last layer is minutes behind the first.
  Model(const WeightSource& source, const LayerSetting& setting, Exec exec, const Ranks& ranks = {});

  /// The layers of this rank's stage: all of them where there is one.
  LayerSpan layers() const { return mine_; }
  /// A cache for each of these layers, see PagedKvCache.
  std::vector<PagedKvCache> make_caches(std::span<const std::int64_t> capacities, std::uint64_t page_seed = 0) const;

  /// What is told of each layer; each may be empty: without `before` traces have no statistics. What they throw leaves the walk.
  struct Hooks {
    std::function<void(std::int64_t layer, Trace&)> before;
    std::function<void(std::int64_t layer, const LayerState& output, const Trace&)> after;
    std::function<void(const LayerTiming&)> timed;
  };
  /// From embeddings [T, H] through layers 0 ... num_hidden_layers - 1 (NextN layers are models of their own): what the last one gives, on
  /// the ranks of all stages. Throws Error as run_layer does, and bad_shape unless there is a cache for each layer of this rank.
  LayerState run(const Batch& batch, const Tensor& embeddings, std::span<PagedKvCache> caches, const Hooks& hooks = {}) const;
  /// The rest of a walk that was left: from `first` on, with what the layer before it gave. Its rows are in the caches below.
  /// Where there are stages, `first` is 0.
  LayerState go_on(std::int64_t first, const Batch& batch, const LayerState& begin_with, std::span<PagedKvCache> caches,
                   const Hooks& hooks = {}) const;

 private:
  struct Loaded {
    LayerWeights weights;
    double seconds;
  };
  void check_layers() const;
  LayerSetting setting_of(std::int64_t layer) const;
  Loaded load(std::int64_t layer) const;
  LayerState run_stage(std::int64_t first, const Batch& batch, LayerState state, std::span<PagedKvCache> caches, const Hooks& hooks,
                       std::optional<Loaded> ready) const;

  const WeightSource* source_;
  LayerSetting setting_;
  Exec exec_;
  Ranks ranks_;
  LayerSpan mine_;
};

}  // namespace dodona::model
