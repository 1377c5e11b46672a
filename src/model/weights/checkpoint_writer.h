// Synthetic checkpoints on disk, in the layout of releases.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "dodona/exec.h"
#include "model/config/config.h"

namespace dodona::model {

struct CheckpointPlan {
  std::int64_t first_layer = 0, last_layer = 0;  ///< both included
  bool outer = false;                            ///< embedding, final norm and lm_head too
  std::uint64_t seed = 0;
  std::int64_t shard_bytes = std::int64_t{5} << 30;  ///< a shard is closed before it grows beyond this
  QuantSpelling spelling = QuantSpelling::separate;
};

struct CheckpointSize {
  std::int64_t tensors = 0, bytes = 0, shards = 0;
};

/// What the plan comes to. Throws Error (bad_value) for layers that the model does not have.
CheckpointSize measure_checkpoint(const ModelConfig& config, const CheckpointPlan& plan);

/// Writes `model-0000i-of-0000n.safetensors`, `model.safetensors.index.json`, `config.json` and `hf_quant_config.json` (the last one for
/// NVFP4 models) into `folder`: the tensors that synthetic_weights(config, plan.seed) gives, bit for bit. One tensor at a time is in
/// memory. `folder` must be absent or empty; it appears whole or not at all. `progress(tensors written)` is called after each tensor.
/// Throws Error (bad_file) if the folder is in use, the disk too small or not writable.
CheckpointSize write_checkpoint(const std::string& folder, const ModelConfig& config, const CheckpointPlan& plan, const Exec& exec,
                                const std::function<void(std::int64_t)>& progress = {});

}  // namespace dodona::model
