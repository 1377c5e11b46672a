#include "model/weights/tensor_list.h"

#include <algorithm>
#include <array>

namespace dodona::model {
namespace {

enum class Kind { linear, vector, bias, scale };

using enum Spread;

constexpr FormTensor codes(const char* suffix, DType type, std::int64_t columns = 1) {
  return {.suffix = suffix, .dtype = type, .columns = columns};
}
constexpr FormTensor input_scale{".input_scale", DType::f32, TensorRole::input_scale, scalar};
constexpr FormTensor row_scale{".weight_scale", DType::f32, TensorRole::scale, column};
constexpr FormTensor qserve_codes{.suffix = ".qweight", .dtype = DType::i8, .columns = 2, .tile = 32};
constexpr FormTensor qserve_scale{".s1_scales", DType::f16, TensorRole::scale, vector};

constexpr std::array bf16_tensors{codes(".weight", DType::bf16)};
constexpr std::array nvfp4_tensors{codes(".weight", DType::u8, 2),
                                   FormTensor{".weight_scale", DType::f8_e4m3, TensorRole::scale, matrix, 1, 16},
                                   FormTensor{".weight_scale_2", DType::f32, TensorRole::scale_2, scalar}, input_scale};
constexpr std::array fp8_block_tensors{codes(".weight", DType::f8_e4m3),
                                       FormTensor{".weight_scale_inv", DType::f32, TensorRole::scale, matrix, 128, 128}};
constexpr std::array fp8_tensors{codes(".weight", DType::f8_e4m3), row_scale};
constexpr std::array int8_tensors{codes(".weight", DType::i8), row_scale};
constexpr std::array qserve_channel_tensors{qserve_codes, qserve_scale, FormTensor{".s1_szeros", DType::f16, TensorRole::zero, vector}};
constexpr std::array qserve_group_tensors{qserve_codes, qserve_scale,
                                          FormTensor{".s2_scales", DType::i8, TensorRole::group_scale, turned, 1, 128},
                                          FormTensor{".s2_zeros", DType::i8, TensorRole::zero, turned, 1, 128}};
constexpr std::array w4a8_tensors{codes(".weight", DType::i8, 2),
                                  FormTensor{".weight_scale_inv", DType::f32, TensorRole::scale, matrix, 1, 128},
                                  FormTensor{".input_scale", DType::f32, TensorRole::input_scale, scalar, 1, 1, DType::bf16}};

/// What a dimension counts that shards may split.
enum class Axis { none, heads, intermediate, vocabulary };

Share share_of(Axis axis, const Shard& shard) {
  switch (axis) {
    case Axis::none: return {};
    case Axis::heads: return shard.heads;
    case Axis::intermediate: return shard.intermediate;
    case Axis::vocabulary: return shard.vocabulary;
  }
  return {};
}

/// A module of the whole model: what its tensors follow from.
struct Module {
  std::string name;
  Kind kind;
  std::int64_t rows, columns;
  Axis row_axis = Axis::none, column_axis = Axis::none;

  LinearSize part(const Shard& shard) const { return {share_of(row_axis, shard).size(rows), share_of(column_axis, shard).size(columns)}; }
};

class ModuleList {
 public:
  ModuleList(const ModelConfig& config, std::int64_t layer, ExpertRange experts) : config_(config), prefix_(layer_prefix(layer)) {
    if (config.is_nextn_layer(layer)) nextn();
    norm("input_layernorm", config.hidden_size);
    attention();
    norm("post_attention_layernorm", config.hidden_size);
    if (config.is_moe_layer(layer)) {
      moe(experts);
    } else {
      mlp("mlp", config.intermediate_size);
    }
  }

  const std::vector<Module>& modules() const { return modules_; }

 private:
  void add(const std::string& name, Kind kind, std::int64_t rows, std::int64_t columns, Axis row_axis = Axis::none,
           Axis column_axis = Axis::none) {
    modules_.push_back({prefix_ + name, kind, rows, columns, row_axis, column_axis});
  }
  void norm(const std::string& name, std::int64_t size) { add(name, Kind::vector, size, 1); }
  void linear(const std::string& name, std::int64_t rows, std::int64_t columns) { add(name, Kind::linear, rows, columns); }
  void split_rows(const std::string& name, std::int64_t rows, std::int64_t columns, Axis axis) {
    add(name, Kind::linear, rows, columns, axis);
  }
  void split_columns(const std::string& name, std::int64_t rows, std::int64_t columns, Axis axis) {
    add(name, Kind::linear, rows, columns, Axis::none, axis);
  }

  void nextn() {
    norm("enorm", config_.hidden_size);
    norm("hnorm", config_.hidden_size);
    linear("eh_proj", config_.hidden_size, 2 * config_.hidden_size);
    norm("shared_head.norm", config_.hidden_size);
  }

  void attention() {
    const ModelConfig& c = config_;
    if (c.q_lora_rank > 0) {
      linear("self_attn.q_a_proj", c.q_lora_rank, c.hidden_size);
      norm("self_attn.q_a_layernorm", c.q_lora_rank);
      split_rows("self_attn.q_b_proj", c.q_rows(), c.q_lora_rank, Axis::heads);
    } else {
      split_rows("self_attn.q_proj", c.q_rows(), c.hidden_size, Axis::heads);
    }
    linear("self_attn.kv_a_proj_with_mqa", c.latent_dim(), c.hidden_size);
    norm("self_attn.kv_a_layernorm", c.kv_lora_rank);
    split_rows("self_attn.kv_b_proj", c.kv_b_rows(), c.kv_lora_rank, Axis::heads);
    split_columns("self_attn.o_proj", c.hidden_size, c.o_columns(), Axis::heads);
    if (c.sparse()) {
      linear("self_attn.indexer.wq_b", c.index_n_heads * c.index_head_dim, c.q_lora_rank);
      linear("self_attn.indexer.wk", c.index_head_dim, c.hidden_size);
      norm("self_attn.indexer.k_norm", c.index_head_dim);
      add("self_attn.indexer.k_norm.bias", Kind::bias, c.index_head_dim, 1);
      linear("self_attn.indexer.weights_proj", c.index_n_heads, c.hidden_size);
    }
    if (c.quant.fp8_kv_cache) {
      add("self_attn.k_proj.k_scale", Kind::scale, 1, 1);
      add("self_attn.v_proj.v_scale", Kind::scale, 1, 1);
    }
  }

  void mlp(const std::string& name, std::int64_t intermediate) {
    split_rows(name + ".gate_proj", intermediate, config_.hidden_size, Axis::intermediate);
    split_rows(name + ".up_proj", intermediate, config_.hidden_size, Axis::intermediate);
    split_columns(name + ".down_proj", config_.hidden_size, intermediate, Axis::intermediate);
  }

  void moe(ExpertRange experts) {
    linear("mlp.gate", config_.n_routed_experts, config_.hidden_size);
    if (config_.has_correction_bias()) add("mlp.gate.e_score_correction_bias", Kind::bias, config_.n_routed_experts, 1);
    if (config_.n_shared_experts > 0) mlp("mlp.shared_experts", config_.shared_intermediate_size());
    for (std::int64_t e = experts.begin; e < experts.end; ++e) mlp("mlp.experts." + std::to_string(e), config_.moe_intermediate_size);
  }

  const ModelConfig& config_;
  std::string prefix_;
  std::vector<Module> modules_;
};

/// `whole` as stored, of which the shard has its part along the module's axes.
TensorInfo matrix_info(const Module& module, const FormTensor& tensor, WeightForm form, const Shard& shard) {
  TensorInfo info{module.name + tensor.suffix, {tensor.dtype}, tensor.shape(module.part(shard)), false, module.columns};
  info.form = form;
  info.whole = tensor.shape({module.rows, module.columns});
  info.tile = tensor.tile;
  if (tensor.other) info.dtypes.push_back(*tensor.other);
  const auto split = [&](int dim, Axis axis) {
    const Share share = share_of(axis, shard);
    if (dim < 0 || share.whole()) return;
    info.split = dim;
    info.begin = share.begin(info.whole[dim]);
  };
  split(tensor.dim_of_rows(), module.row_axis);
  split(tensor.dim_of_columns(), module.column_axis);
  return info;
}

void append_tensors(const ModelConfig& config, const Module& module, const Shard& shard, std::vector<TensorInfo>& out) {
  switch (module.kind) {
    case Kind::vector: out.push_back({module.name + ".weight", {DType::bf16}, {module.rows}}); return;
    case Kind::bias: out.push_back({module.name, {DType::f32, DType::bf16}, {module.rows}}); return;
    case Kind::scale: out.push_back({module.name, {DType::f32}, Dims(), true}); return;
    case Kind::linear: break;
  }
  const WeightForm form = config.form_of(module.name);
  for (const FormTensor& tensor : tensors_of(form)) out.push_back(matrix_info(module, tensor, form, shard));
}

std::vector<Module> outer_modules(const ModelConfig& c) {
  return {{"model.norm", Kind::vector, c.hidden_size, 1}, {"lm_head", Kind::linear, c.vocab_size, c.hidden_size, Axis::vocabulary}};
}

/// The number that `text` begins with, up to the next dot; -1 if it is none or absurd.
std::int64_t leading_number(std::string_view text) {
  const auto digits = std::min(text.find('.'), text.size());
  if (digits == 0 || digits > 9) return -1;
  std::int64_t value = 0;
  for (const char c : text.substr(0, digits)) {
    if (c < '0' || c > '9') return -1;
    value = value * 10 + (c - '0');
  }
  return value;
}

/// The few modules among which one called `name`, or a tensor of it, would be; without the other experts. What an expert's activations are
/// divided by every shard has of all experts: some kernels take the largest.
std::vector<Module> modules_near(const ModelConfig& config, std::string_view name, const Shard& shard) {
  constexpr std::string_view layers = "model.layers.", experts = ".mlp.experts.";
  if (!name.starts_with(layers)) return outer_modules(config);
  const std::int64_t layer = leading_number(name.substr(layers.size()));
  if (layer < 0 || layer >= config.total_layers()) return {};
  ExpertRange range{0, 0};
  if (const auto at = name.find(experts); at != std::string_view::npos) {
    const std::int64_t expert = leading_number(name.substr(at + experts.size()));
    const ExpertRange local = name.ends_with(".input_scale") ? ExpertRange{0, config.n_routed_experts} : local_experts(config, shard);
    if (expert < local.begin || expert >= local.end) return {};
    range = {expert, expert + 1};
  }
  return ModuleList(config, layer, range).modules();
}

TensorInfo embedding(const ModelConfig& config, const Shard& shard) {
  TensorInfo info = matrix_info({"model.embed_tokens", Kind::linear, config.vocab_size, config.hidden_size, Axis::vocabulary},
                                bf16_tensors.front(), WeightForm::bf16, shard);
  info.columns = 0;  // no linear
  return info;
}

}  // namespace

std::string layer_prefix(std::int64_t layer) {
  return "model.layers." + std::to_string(layer) + ".";
}

Dims FormTensor::shape(const LinearSize& size) const {
  const std::int64_t along_rows = (size.rows + rows - 1) / rows, along_columns = (size.columns + columns - 1) / columns;
  switch (spread) {
    case Spread::matrix: return {along_rows, along_columns};
    case Spread::turned: return {along_columns, along_rows};
    case Spread::column: return {along_rows, 1};
    case Spread::vector: return {along_rows};
    case Spread::scalar: break;
  }
  return {};
}
TensorInfo TensorInfo::tile_by_tile() const {
  if (tile == 1) return *this;
  TensorInfo folded = *this;
  for (Dims* const dims : {&folded.shape, &folded.whole}) *dims = {(*dims)[0] / tile, (*dims)[1] * tile};
  folded.begin = split == 0 ? begin / tile : begin * tile;
  folded.tile = 1;
  return folded;
}
int FormTensor::dim_of_rows() const {
  return spread == Spread::scalar ? -1 : spread == Spread::turned ? 1 : 0;
}
int FormTensor::dim_of_columns() const {
  return spread == Spread::matrix ? 1 : spread == Spread::turned ? 0 : -1;
}

std::span<const FormTensor> tensors_of(WeightForm form) {
  switch (form) {
    case WeightForm::bf16: return bf16_tensors;
    case WeightForm::nvfp4: return nvfp4_tensors;
    case WeightForm::fp8_block: return fp8_block_tensors;
    case WeightForm::fp8: return fp8_tensors;
    case WeightForm::int8: return int8_tensors;
    case WeightForm::qserve_channel: return qserve_channel_tensors;
    case WeightForm::qserve_group: return qserve_group_tensors;
    case WeightForm::w4a8: return w4a8_tensors;
  }
  return {};
}

std::vector<TensorInfo> layer_tensors(const ModelConfig& config, std::int64_t layer, const Shard& shard) {
  config.check_layer(layer);
  std::vector<TensorInfo> tensors;
  const ModuleList list(config, layer, local_experts(config, shard));
  for (const Module& module : list.modules()) append_tensors(config, module, shard, tensors);
  return tensors;
}

std::vector<TensorInfo> outer_tensors(const ModelConfig& config, const Shard& shard) {
  std::vector<TensorInfo> tensors{embedding(config, shard)};
  for (const Module& module : outer_modules(config)) append_tensors(config, module, shard, tensors);
  return tensors;
}

std::optional<TensorInfo> find_tensor_info(const ModelConfig& config, std::string_view name, const Shard& shard) {
  if (TensorInfo info = embedding(config, shard); info.name == name) return info;
  for (const Module& module : modules_near(config, name, shard)) {
    if (!name.starts_with(module.name)) continue;
    std::vector<TensorInfo> tensors;
    append_tensors(config, module, shard, tensors);
    for (TensorInfo& tensor : tensors)
      if (tensor.name == name) return std::move(tensor);
  }
  return std::nullopt;
}

std::optional<LinearSize> find_linear(const ModelConfig& config, std::string_view name, const Shard& shard) {
  for (const Module& module : modules_near(config, name, shard))
    if (module.kind == Kind::linear && module.name == name) return module.part(shard);
  return std::nullopt;
}

}  // namespace dodona::model
