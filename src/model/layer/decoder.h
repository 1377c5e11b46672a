// One decoder layer: attention, then the dense MLP or the mixture of experts.
#pragma once

#include "model/layer/attention/kv_cache.h"
#include "model/layer/batch.h"
#include "model/layer/layer_weights.h"
#include "model/layer/ranks.h"
#include "model/layer/trace.h"

namespace dodona::model {

/// What a layer is given and what it hands on: the next norm adds the two.
struct LayerState {
  /// [T, H]: what the layer below gave, before its residual is added; for the first layer the embeddings. Of a setting that hands on terms,
  /// this rank's term of it.
  Tensor hidden;
  Tensor residual;  ///< [T, H]; undefined for a first layer
};

/// Takes the batch through the layer; the new tokens' rows are written to the cache. Inputs are not changed. Experts that the router
/// chooses are loaded between the ops; the trace does not count that time. With a trace that plans, nothing is computed: weights, cache and
/// state may be without memory. Throws Error naming the model op, or what of batch, state and weights does not fit; unsupported for the
/// weights of a shard without the ranks that hold the others, unless it is planned.
LayerState run_layer(LayerWeights& weights, const Batch& batch, const LayerState& state, PagedKvCache& cache, Trace& trace,
                     const Ranks& ranks = {});

/// The book for the batch through this layer; without `sizes` for any batch that goes the same way.
ShapeBook layer_book(const WeightSource& source, const LayerSetting& setting, const Batch& batch, bool sizes = true);
/// A trace for such a batch.
Trace layer_trace(const LayerWeights& weights, const Batch& batch, const Exec& exec, Trace::Bodies bodies = Trace::Bodies::run);

}  // namespace dodona::model
