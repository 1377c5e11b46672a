// What a decode step of a layer will cost, without doing it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/trace.h"

namespace dodona::model {

struct Plan {
  std::vector<OpRecord> ops;      ///< in the order of execution, with shapes, kernels and work; seconds are 0
  double weight_bytes = 0;        ///< that the step reads
  double layer_weight_bytes = 0;  ///< of the whole layer, with all experts
  double cache_bytes = 0;         ///< pages of the KV cache
};

/// For one new token of each request; lengths count it. Of the routed experts the step reads min(B * K, E). Allocates no tensors.
/// Throws Error (bad_value) as PagedKvCache and check_layer do.
Plan plan_decode(const ModelConfig& config, std::int64_t layer, std::span<const std::int64_t> lengths, bool fused_shared);

}  // namespace dodona::model
