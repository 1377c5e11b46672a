// A decode step as the command and the C interface ask for one: what is not said is drawn from a seed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/json.h"
#include "model/decode_layer.h"

namespace dodona::model {

/// The configuration in `folder`, else the preset, else the one beside the weights, else r1-nvfp4; empty texts are not given.
ModelConfig choose_config(const std::string& folder, const std::string& preset, const std::string& weights);
/// The first MoE layer; 0 if there is none.
std::int64_t default_layer(const ModelConfig& config);
/// The checkpoint in `folder`; weights synthesized from the seed if it is empty.
std::unique_ptr<WeightSource> open_weights(const ModelConfig& config, const std::string& folder, std::uint64_t seed, const Exec& exec);

/// hidden and, except for layers that have none, residual [B, H]: normal numbers of the streams "hidden" and "residual".
DecodeStep draw_step(const ModelConfig& config, std::int64_t layer, const std::vector<std::int64_t>& lengths, Rounding rounding,
                     std::uint64_t seed);

/// SHA-256 over the bytes of hidden, then residual.
std::string digest_of(const LayerOutput& output);

/// One line of the execution tree: op, note, depth, shapes, kernels, seconds, bytes, weight_bytes, flops, int8_ops, rms, not_finite.
io::Json to_json(const OpRecord& record);

}  // namespace dodona::model
