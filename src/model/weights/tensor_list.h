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
  std::string name;                    ///< "model.layers.3.mlp.experts.7.gate_proj.weight_scale"
  std::vector<DType> dtypes;           ///< accepted ones; the first is what is synthesized
  Dims shape;                          ///< of the shard's part
  bool optional = false;               ///< k_scale, v_scale: absent counts as 1
  std::int64_t columns = 0;            ///< K of the whole linear module that it belongs to, else 0
  Dims whole = shape;                  ///< as the checkpoint stores it
  WeightForm form = WeightForm::bf16;  ///< of that module
  int split = -1;                      ///< the dimension along which this is a part; -1: it is the whole
  std::int64_t begin = 0;              ///< where along it the part begins
  std::int64_t tile = 1;               ///< rows of the tiles that lie one behind the other, across all columns, before the next ones

  std::int64_t bytes() const { return bytes_for(dtypes.front(), element_count(shape)); }
  /// The same bytes with a row for each row of tiles: there a part's columns are columns.
  TensorInfo tile_by_tile() const;
};

/// Rows and columns of a linear module.
struct LinearSize {
  std::int64_t rows = 0, columns = 0;
};

/// How a tensor of a linear module [N, K] lies.
enum class Spread {
  matrix,  ///< [N / rows, K / columns], rounded up
  turned,  ///< [K / columns, N / rows]: rows of the matrix along its second dimension
  column,  ///< [N, 1]
  vector,  ///< [N]
  scalar,  ///< []
};

/// What it is to the module: a field of Linear.
enum class TensorRole { weight, scale, group_scale, zero, scale_2, input_scale };

/// A tensor of a linear module in one form: one element for `rows` by `columns` elements of the matrix.
struct FormTensor {
  const char* suffix;  ///< ".weight_scale"
  DType dtype;
  TensorRole role = TensorRole::weight;
  Spread spread = Spread::matrix;
  std::int64_t rows = 1, columns = 1;
  std::optional<DType> other = {};  ///< a type in which it is accepted too
  std::int64_t tile = 1;            ///< as in TensorInfo

  bool scalar() const { return spread == Spread::scalar; }
  Dims shape(const LinearSize& size) const;
  /// The dimension along which the matrix's rows lie, or its columns; -1: along none.
  int dim_of_rows() const;
  int dim_of_columns() const;
};
/// The weight comes first.
std::span<const FormTensor> tensors_of(WeightForm form);

/// All tensors of one layer (0 <= layer < total_layers()), in the order of the model; of a shard, its parts of them.
/// Per linear module X:
///   bf16            `X.weight` bf16 [N, K]
///   NVFP4           `X.weight` u8 [N, K/2], `X.weight_scale` f8_e4m3 [N, K/16] (linear layout), `X.weight_scale_2`, `X.input_scale` f32 []
///   fp8-block       `X.weight` f8_e4m3 [N, K], `X.weight_scale_inv` f32 [ceil(N/128), ceil(K/128)], a factor despite its name
///   fp8, int8       `X.weight` f8_e4m3 or i8 [N, K], `X.weight_scale` f32 [N, 1]
///   qserve-channel  `X.qweight` i8 [N, K/2] (tiles), `X.s1_scales`, `X.s1_szeros` f16 [N]
///   qserve-group    `X.qweight`, `X.s1_scales`, `X.s2_scales`, `X.s2_zeros` i8 [K/128, N]
///   w4a8            `X.weight` i8 [N, K/2], `X.weight_scale_inv` f32 [N, K/128], `X.input_scale` f32 [] (bf16 accepted)
/// Norms bf16, e_score_correction_bias f32 (bf16 accepted; none in V2).
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
