// The routed experts of one layer for a batch of tokens.
#pragma once

#include "model/layer_weights.h"
#include "model/trace.h"

namespace dodona::model {

/// out[t] = sum over j of topk_weights[t,j] * Expert_{topk_ids[t,j]}(x[t]), x [B, H], topk_weights f32 [B, K], topk_ids i32 [B, K].
/// The experts have been touched.
///
/// NVFP4 (sglang `cutlass_moe_fp4`): rows sorted by expert, quantized with each expert's own scale, multiplied, activated, quantized,
/// multiplied, and summed with weights rounded to bf16; the routed scaling factor is in the weights already.
/// bf16 (sglang's Triton runner): each row is weighted in fp32 before it is rounded; the sum is scaled by routed_scaling_factor in fp32
/// and rounded once.
Tensor routed_experts(const LayerWeights& weights, const Tensor& x, const Tensor& topk_weights, const Tensor& topk_ids, Trace& trace);

/// Whether the runner of these experts wants routed_scaling_factor inside the router's weights.
bool scales_router_weights(const LayerWeights& weights);

}  // namespace dodona::model
