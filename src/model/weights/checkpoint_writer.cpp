#include "model/weights/checkpoint_writer.h"

#include <cstdio>
#include <vector>

#include "dodona/error.h"
#include "io/atomic_folder.h"
#include "io/bytes.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/weights/tensor_list.h"
#include "model/weights/weights.h"

namespace dodona::model {
namespace {

using ShardFile = std::vector<TensorInfo>;

std::vector<ShardFile> plan_shards(const ModelConfig& config, const CheckpointPlan& plan) {
  config.check_layer(plan.first_layer);
  config.check_layer(plan.last_layer);
  if (plan.first_layer > plan.last_layer)
    throw Error(ErrorCode::bad_value, "", "",
                "layers " + std::to_string(plan.first_layer) + ".." + std::to_string(plan.last_layer) + " run backwards");
  std::vector<ShardFile> shards(1);
  std::int64_t filled = 0;
  const auto add = [&](std::vector<TensorInfo> tensors) {
    for (TensorInfo& tensor : tensors) {
      if (filled + tensor.bytes() > plan.shard_bytes && !shards.back().empty()) {
        shards.emplace_back();
        filled = 0;
      }
      filled += tensor.bytes();
      shards.back().push_back(std::move(tensor));
    }
  };
  if (plan.outer) add(outer_tensors(config));
  for (std::int64_t layer = plan.first_layer; layer <= plan.last_layer; ++layer) add(layer_tensors(config, layer));
  return shards;
}

CheckpointSize measure(const std::vector<ShardFile>& shards) {
  CheckpointSize size;
  size.shards = static_cast<std::int64_t>(shards.size());
  for (const ShardFile& shard : shards)
    for (const TensorInfo& tensor : shard) {
      ++size.tensors;
      size.bytes += tensor.bytes();
    }
  return size;
}

std::string shard_name(std::size_t number, std::size_t count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", number + 1, count);
  return name;
}

std::string index_text(const std::vector<ShardFile>& shards, std::int64_t bytes) {
  // Put together as text: a tree of this many names would be searched for each new one.
  std::string text = "{\n  \"metadata\": {\"total_size\": " + std::to_string(bytes) + "},\n  \"weight_map\": {";
  bool first = true;
  for (std::size_t i = 0; i < shards.size(); ++i)
    for (const TensorInfo& tensor : shards[i]) {
      text += std::string(first ? "\n" : ",\n") + "    \"" + tensor.name + "\": \"" + shard_name(i, shards.size()) + "\"";
      first = false;
    }
  return text + "\n  }\n}\n";
}

}  // namespace

CheckpointSize measure_checkpoint(const ModelConfig& config, const CheckpointPlan& plan) {
  return measure(plan_shards(config, plan));
}

CheckpointSize write_checkpoint(const std::string& folder, const ModelConfig& config, const CheckpointPlan& plan, const Exec& exec,
                                const std::function<void(std::int64_t)>& progress) {
  const std::vector<ShardFile> shards = plan_shards(config, plan);
  const CheckpointSize size = measure(shards);
  constexpr std::size_t beside = 3;  // index and configurations
  io::AtomicFolder out(folder, shards.size() + beside);
  out.require_space(size.bytes);
  const auto weights = synthetic_weights(config, plan.seed, exec);
  std::int64_t done = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    std::vector<io::PlannedTensor> planned;
    for (const TensorInfo& tensor : shards[i]) planned.push_back({tensor.name, tensor.dtypes.front(), tensor.shape});
    const auto data = [&](std::size_t t) {
      if (progress) progress(done);
      ++done;
      return weights->get(planned[t].name);
    };
    io::write_safetensors(out.add(shard_name(i, shards.size())), planned, data, {{"format", "pt"}});
  }
  const auto write_text = [&](const char* name, const std::string& text) { out.add(name).write(io::as_bytes(text)); };
  write_text("model.safetensors.index.json", index_text(shards, size.bytes));
  write_text("config.json", config_json(config, plan.spelling));
  if (const std::string quant = hf_quant_config_json(config); !quant.empty() && plan.spelling == QuantSpelling::separate)
    write_text("hf_quant_config.json", quant);
  out.commit();
  return size;
}

}  // namespace dodona::model
