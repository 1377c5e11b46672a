// The MLP of a decoder layer: dense, or the mixture of experts with its router and shared expert.
#pragma once

#include "model/layer_weights.h"
#include "model/trace.h"

namespace dodona::model {

/// x [B, H], normalised, to [B, H].
Tensor dense_mlp(const LayerWeights& weights, const Tensor& x, Trace& trace);
Tensor moe(LayerWeights& weights, const Tensor& x, Trace& trace);

}  // namespace dodona::model
