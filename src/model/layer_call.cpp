#include "model/layer_call.h"

#include "core/random.h"
#include "io/sha256.h"
#include "quant/element.h"

namespace dodona::model {
namespace {

Tensor drawn(const char* name, std::uint64_t seed, const Dims& shape, DType type) {
  Tensor tensor(type, shape);
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  fill_normal(Stream(seed, name), 0, values);
  quant::from_f32(type, values.data(), tensor.data(), tensor.elements());
  return tensor;
}

}  // namespace

ModelConfig choose_config(const std::string& folder, const std::string& preset_name, const std::string& weights) {
  if (!folder.empty()) return load_config(folder);
  if (!preset_name.empty()) return preset(preset_name);
  return weights.empty() ? preset("r1-nvfp4") : load_config(weights);
}

std::int64_t default_layer(const ModelConfig& config) {
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    if (config.is_moe_layer(layer)) return layer;
  return 0;
}

std::unique_ptr<WeightSource> open_weights(const ModelConfig& config, const std::string& folder, std::uint64_t seed, const Exec& exec) {
  return folder.empty() ? synthetic_weights(config, seed, exec) : open_checkpoint(folder, config);
}

DecodeStep draw_step(const ModelConfig& config, std::int64_t layer, const std::vector<std::int64_t>& lengths, Rounding rounding,
                     std::uint64_t seed) {
  const DType type = activation_type(rounding);
  const Dims shape{static_cast<std::int64_t>(lengths.size()), config.hidden_size};
  DecodeStep step{drawn("hidden", seed, shape, type), {}, lengths};
  // The first layer takes embeddings; later ones have a residual beside what the layer below gave.
  if (layer > 0 && !config.is_nextn_layer(layer)) step.residual = drawn("residual", seed, shape, type);
  return step;
}

std::string digest_of(const LayerOutput& output) {
  io::Sha256 hash;
  for (const Tensor& tensor : {output.hidden, output.residual}) {
    const Tensor dense = tensor.contiguous() ? tensor : tensor.clone();
    hash.update({dense.as<std::byte>(), static_cast<std::size_t>(bytes_for(dense.dtype(), dense.elements()))});
  }
  return io::to_hex(hash.digest());
}

io::Json to_json(const OpRecord& record) {
  return {{"op", record.op},
          {"note", record.note},
          {"depth", record.depth},
          {"shapes", record.shapes},
          {"kernels", record.kernels},
          {"seconds", record.seconds},
          {"bytes", record.work.bytes},
          {"weight_bytes", record.work.weight_bytes},
          {"flops", record.work.flops},
          {"int8_ops", record.work.int8_ops},
          {"rms", record.rms},
          {"not_finite", record.not_finite}};
}

}  // namespace dodona::model
