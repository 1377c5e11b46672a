// The cos/sin table of rope with YaRN scaling.
#pragma once

#include <cstdint>
#include <vector>

#include "dodona/tensor.h"
#include "model/config/config.h"

namespace dodona::model {

/// f32 [positions, qk_rope_head_dim], row p = [cos(p * inv[i]) * M | sin(p * inv[i]) * M]. Angles p * inv[i] are rounded to fp32, as
/// upstream's are; cos and sin are taken in double precision (core/fixed_math.h) and rounded once. Without YaRN inv[i] = theta^(-2i/R)
/// and M = 1. Throws Error (bad_value) when positions exceed max_position_embeddings (of which YaRN covers factor *
/// original_max_positions): upstream's own extension of the table is wrong there.
/// Source: sglang `DeepseekScalingRotaryEmbedding`.
Tensor rope_table(const ModelConfig& config, std::int64_t positions, int threads = 1);

/// Only the given positions' rows, in that order: a decode step needs few of 163840.
Tensor rope_table_rows(const ModelConfig& config, const std::vector<std::int64_t>& positions);

/// inv[i], i < qk_rope_head_dim / 2, in fp32: theta^(-2i/R), under YaRN blended with 1/factor of it between the corrected dimensions.
std::vector<float> rope_inverse_frequencies(const ModelConfig& config);

}  // namespace dodona::model
