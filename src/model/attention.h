// Multi-head latent attention in its absorbed form, for one new token per request.
#pragma once

#include <cstdint>
#include <span>

#include "model/kv_cache.h"
#include "model/layer_weights.h"
#include "model/trace.h"

namespace dodona::model {

/// x [B, H], normalised, to [B, H]. `self.self_attn()` of the execution graph: forward_absorb_prepare, forward_absorb_core.
Tensor self_attn(const LayerWeights& weights, const Tensor& x, std::span<const std::int64_t> lengths, PagedKvCache& cache, Trace& trace);

}  // namespace dodona::model
