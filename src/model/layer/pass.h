// One pass of a batch through a layer: what its functions work on.
#pragma once

#include <string_view>

#include "model/layer/attention/kernels.h"
#include "model/layer/attention/kv_cache.h"
#include "model/layer/batch.h"
#include "model/layer/layer_weights.h"
#include "model/layer/ranks.h"
#include "model/layer/trace.h"
#include "model/layer/work.h"

namespace dodona::model {

/// What runs where there are several: chosen once, before the first op. The shape book, which chooses by itself, must agree.
struct Choices {
  AttentionChoice attention;
  const LowLatencyKernel* fused_qkv_a = nullptr;  ///< nullptr: the weight's own method
  const LowLatencyKernel* router = nullptr;
};
/// Throws Error (unsupported) where nothing runs the batch.
Choices choose(const LayerWeights& weights, const Batch& batch);

struct Pass {
  LayerWeights& weights;
  const Batch& batch;
  PagedKvCache& cache;
  Trace& trace;
  Choices choices;
  Ranks ranks = {};
  const ModelConfig* replaced = nullptr;  ///< stands for the weights' own configuration

  const ModelConfig& config() const { return replaced != nullptr ? *replaced : weights.config(); }
  const Exec& exec() const { return trace.exec(); }
  std::int64_t tokens() const { return batch.tokens(); }

  /// Model ops of one product or norm.
  Tensor project(Part part, std::string_view name, const Projection& projection, const Tensor& x) const;
  Tensor rmsnorm(Part part, std::string_view name, const Tensor& x, const Tensor& weight) const;
};

}  // namespace dodona::model
