// The tensors of a checkpoint, from its configuration: names, dtypes, shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dodona/tensor.h"
#include "model/config/config.h"
#include "model/weights/shard.h"

namespace dodona::model {

struct TensorInfo {
  std::string name;           ///< "model.layers.3.mlp.experts.7.gate_proj.weight_scale"
  std::vector<DType> dtypes;  ///< accepted ones; the first is what is synthesized
  Dims shape;                 ///< of the shard's part
  bool optional = false;      ///< k_scale, v_scale: absent counts as 1
  std::int64_t columns = 0;   ///< K of the whole linear module that it belongs to, else 0
  Dims whole = shape;         ///< as the checkpoint stores it
  int split = -1;             ///< the dimension along which this is a part; -1: it is the whole
  std::int64_t begin = 0;     ///< where along it the part begins

  std::int64_t bytes() const { return bytes_for(dtypes.front(), element_count(shape)); }
};

/// Rows and columns of a linear module.
struct LinearSize {
  std::int64_t rows = 0, columns = 0;
};

/// A tensor of a linear module [N, K] in one form: one element for `rows` by `columns` elements of the matrix; a scalar where both are 0.
struct FormTensor {
  const char* suffix;  ///< ".weight_scale"
  DType dtype;
  std::int64_t rows = 1, columns = 1;

  bool scalar() const { return columns == 0; }
  Dims shape(const LinearSize& size) const { return scalar() ? Dims() : Dims{size.rows / rows, size.columns / columns}; }
};
std::span<const FormTensor> tensors_of(WeightForm form);

/// All tensors of one layer (0 <= layer < total_layers()), in the order of the model; of a shard, its parts of them.
/// Per linear module X: `X.weight` bf16 [N, K], or in NVFP4 `X.weight` u8 [N, K/2], `X.weight_scale` f8_e4m3 [N, K/16] (linear layout),
/// `X.weight_scale_2` and `X.input_scale` f32 []. Norms bf16, e_score_correction_bias f32 (bf16 accepted).
std::vector<TensorInfo> layer_tensors(const ModelConfig& config, std::int64_t layer, const Shard& shard = {});
/// Embedding, final norm, lm_head.
std::vector<TensorInfo> outer_tensors(const ModelConfig& config, const Shard& shard = {});
/// What the checkpoint must hold under `name`; nothing if the model has no such tensor, or the shard no part of it.
std::optional<TensorInfo> find_tensor_info(const ModelConfig& config, std::string_view name, const Shard& shard = {});
/// Size of the linear module `module`; nothing if the model or the shard has none of that name.
std::optional<LinearSize> find_linear(const ModelConfig& config, std::string_view module, const Shard& shard = {});

/// "model.layers.3."
std::string layer_prefix(std::int64_t layer);

}  // namespace dodona::model
