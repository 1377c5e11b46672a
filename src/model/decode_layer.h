// One decoder layer in the decode phase: MLA in its absorbed form, then the dense MLP or the mixture of experts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/kv_cache.h"
#include "model/layer_weights.h"
#include "model/trace.h"

namespace dodona::model {

/// How the residual meets the norms: fused_add_rmsnorm normalizes the fp32 sum (one device, or tensor parallelism); with pre-added
/// residuals the sum is rounded first, then normalized by rmsnorm (data-parallel attention). Source: sglang `LayerCommunicator`.
enum class Residual { fused, pre_added };

struct DecodeStep {
  Tensor hidden;                      ///< [B, H]: the layer below, before its residual is added; for the first layer the embeddings
  Tensor residual;                    ///< [B, H]; undefined for the first layer
  std::vector<std::int64_t> lengths;  ///< tokens of each request including the new one, whose position is one less
};
struct LayerOutput {
  Tensor hidden, residual;  ///< handed on as a pair: the next norm adds them
};

/// Runs one decode step of the layer; the new tokens' rows are written to the cache. Inputs are not changed. Experts that the router
/// chooses are loaded between the ops; the trace does not count that time. Throws Error naming the model op.
LayerOutput decode(LayerWeights& weights, const DecodeStep& step, PagedKvCache& cache, Residual residual, Trace& trace);

/// The book for a decode step of `batch` requests through this layer; batch 0: unknown.
ShapeBook decode_book(const ModelConfig& config, std::int64_t layer, std::int64_t batch, bool fused_shared);

}  // namespace dodona::model
