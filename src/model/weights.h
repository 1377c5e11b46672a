// Where the weights of a model come from: a checkpoint on disk, or a seed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dodona/exec.h"
#include "dodona/tensor.h"
#include "model/config.h"

namespace dodona::model {

/// A linear in ModelOpt's NVFP4: W[n,k] = e2m1(weight[n,k]) * e4m3(weight_scale[n,k/16]) * weight_scale_2.
/// A GEMM's alpha is input_scale * weight_scale_2; activations are quantized with the global scale 1 / input_scale.
struct Nvfp4Linear {
  Tensor weight;        ///< u8 [N, K/2], two codes a byte, element 2j in the low nibble
  Tensor weight_scale;  ///< f8_e4m3 [N, K/16], linear layout (not swizzled, not padded), as stored
  float weight_scale_2 = 1, input_scale = 1;
};

/// One linear module in the form in which the checkpoint stores it.
struct Linear {
  std::string module;  ///< for messages
  std::int64_t rows = 0, columns = 0;
  Tensor bf16;        ///< [N, K]; undefined when the module is NVFP4
  Nvfp4Linear nvfp4;  ///< its tensors are undefined when the module is bf16

  bool is_nvfp4() const { return nvfp4.weight.defined(); }
  /// Bytes that a pass over the weights reads.
  std::int64_t bytes() const;
};

/// The dense bf16 matrix of `linear`: itself, or fp32(code * scale) * weight_scale_2 rounded to bf16.
Tensor dequantize(const Linear& linear, int threads);
/// NVFP4 weights without the tensor's scale, exact in bf16: the product of code and block scale has at most six significant bits.
Tensor dequantize_unscaled(const Linear& linear, int threads);

/// What cached latents are divided by: 1 unless the checkpoint was calibrated for an FP8 cache.
struct KvScales {
  float k = 1, v = 1;
};

/// Names tensors as the checkpoint does ("model.layers.3.input_layernorm.weight"). Tensors are read-only, contiguous, and stay valid
/// after the source is gone. All functions may be called from several threads at once, and throw Error naming the tensor, what was expected
/// and what was found: missing_argument, bad_dtype, bad_shape, bad_value, bad_file.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  const ModelConfig& config() const { return config_; }
  /// "checkpoint FOLDER" or "synthetic weights, seed 7".
  virtual std::string description() const = 0;

  virtual bool has(std::string_view name) const = 0;
  /// Dtype and shape are those of find_tensor_info.
  virtual Tensor get(std::string_view name) const = 0;
  /// The same bytes into memory of the caller: `out` has exactly the tensor's size.
  virtual void read(std::string_view name, std::span<std::byte> out) const = 0;
  /// The value of an f32 tensor of one element; where an optional tensor (k_scale) is absent: 1.
  float scalar(std::string_view name) const;

  /// The module's weights: zero-copy from a checkpoint.
  Linear linear(std::string_view module) const;
  /// The rows of several modules of equal K, one below the other: gate_proj and up_proj; q_a_proj and kv_a_proj_with_mqa. Owns its memory.
  /// All must be NVFP4 or all bf16; NVFP4 modules must share weight_scale_2 and input_scale, else bad_value names both modules and both
  /// values.
  Linear fused(std::span<const std::string> modules) const;

  /// `k_proj.k_scale` and `v_proj.v_scale` of the layer's attention; where only one is present it counts for both.
  KvScales kv_scales(std::int64_t layer) const;

  /// Looks at every tensor that layer `layer` should have: present, of the right dtype and shape. Reads headers only.
  virtual void check_layer(std::int64_t layer) const = 0;

 protected:
  explicit WeightSource(ModelConfig config) : config_(std::move(config)) {}

 private:
  ModelConfig config_;
};

/// A folder with `model.safetensors.index.json` and its shards, or with one `model.safetensors`. Shards are memory-mapped when first
/// needed: only what is touched is paged in. Throws Error for a folder without either, an index that names an absent shard, a shard that
/// is truncated or a Git LFS pointer.
std::unique_ptr<WeightSource> open_checkpoint(const std::string& folder, ModelConfig config);

/// Weights drawn from `seed` and each tensor's name, any one alone; the same bytes on every machine (model/synthetic.h gives the formulas).
/// `exec` says with how many threads and on which tier they are made.
std::unique_ptr<WeightSource> synthetic_weights(ModelConfig config, std::uint64_t seed, const Exec& exec);

}  // namespace dodona::model
