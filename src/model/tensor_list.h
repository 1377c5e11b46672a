// The tensors of a checkpoint, from its configuration: names, dtypes, shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dodona/tensor.h"
#include "model/config.h"

namespace dodona::model {

struct TensorInfo {
  std::string name;           ///< "model.layers.3.mlp.experts.7.gate_proj.weight_scale"
  std::vector<DType> dtypes;  ///< accepted ones; the first is what is synthesized
  Dims shape;
  bool optional = false;     ///< k_scale, v_scale: absent counts as 1
  std::int64_t columns = 0;  ///< K of the linear module it belongs to, else 0

  std::int64_t bytes() const { return bytes_for(dtypes.front(), element_count(shape)); }
};

/// Rows and columns of a linear module.
struct LinearSize {
  std::int64_t rows = 0, columns = 0;
};

/// All tensors of one layer (0 <= layer < total_layers()), in the order of the model.
/// Per linear module X: `X.weight` bf16 [N, K], or in NVFP4 `X.weight` u8 [N, K/2], `X.weight_scale` f8_e4m3 [N, K/16] (linear layout),
/// `X.weight_scale_2` and `X.input_scale` f32 []. Norms bf16, e_score_correction_bias f32 (bf16 accepted).
std::vector<TensorInfo> layer_tensors(const ModelConfig& config, std::int64_t layer);
/// Embedding, final norm, lm_head.
std::vector<TensorInfo> outer_tensors(const ModelConfig& config);
/// What the checkpoint must hold under `name`; nothing if the model has no such tensor.
std::optional<TensorInfo> find_tensor_info(const ModelConfig& config, std::string_view name);
/// Size of the linear module `module`; nothing if the model has none of that name.
std::optional<LinearSize> find_linear(const ModelConfig& config, std::string_view module);

/// "model.layers.3."
std::string layer_prefix(std::int64_t layer);

}  // namespace dodona::model
