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
#include "model/config/config.h"
#include "model/weights/shard.h"

namespace dodona::model {

/// One linear module [N, K] in the form in which the checkpoint stores it.
/// tensors_of(form) says which tensors there are and of which types. What W[n,k] is:
///   bf16            weight
///   fp8_block       weight * weight_scale[n/128, k/128]
///   fp8, int8       weight * weight_scale[n]
///   qserve_channel  code * weight_scale[n] - zeros[n]
///   qserve_group    (code * group_scales[k/128, n'] + zeros[k/128, n']) * weight_scale[n]; n' as the kernels have it
///   w4a8            code * bf16(weight_scale[n, k/128]); input_scale is what activations are divided by
/// ModelOpt's NVFP4: W[n,k] = e2m1(weight[n,k]) * e4m3(weight_scale[n,k/16]) * weight_scale_2; a GEMM's alpha is
/// input_scale * weight_scale_2, and activations are quantized with the global scale 1 / input_scale.
struct Linear {
  std::string module;  ///< for messages
  WeightForm form = WeightForm::bf16;
  std::int64_t rows = 0, columns = 0;
  Tensor weight;               ///< bf16 [N, K]; NVFP4: u8 [N, K/2], two codes a byte, element 2j in the low nibble
  Tensor weight_scale;         ///< NVFP4: f8_e4m3 [N, K/16], linear layout (not swizzled, not padded), as stored
  Tensor group_scales, zeros;  ///< of QServe
  float weight_scale_2 = 1, input_scale = 1;

  /// Bytes that a pass over the weights reads, whether or not they are there.
  std::int64_t bytes() const;
};

/// The dense matrix of `linear` in bf16 or f32: itself, or what W is above, computed in fp32; NVFP4: fp32(code * scale) * weight_scale_2.
Tensor dequantize(const Linear& linear, int threads, DType type = DType::bf16);
/// NVFP4 weights without the tensor's scale, exact in bf16: the product of code and block scale has at most six significant bits.
Tensor dequantize_unscaled(const Linear& linear, int threads);

/// What cached latents are divided by: 1 unless the checkpoint was calibrated for an FP8 cache.
struct KvScales {
  float k = 1, v = 1;
};

/// Names tensors as the checkpoint does ("model.layers.3.input_layernorm.weight"). Tensors are the shard's parts, read-only, contiguous,
/// and stay valid after the source is gone. All functions may be called from several threads at once, and throw Error naming the tensor,
/// what was expected and what was found: missing_argument, bad_dtype, bad_shape, bad_value, bad_file.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  /// Of the whole model.
  const ModelConfig& config() const { return config_; }
  const Shard& shard() const { return shard_; }
  /// Of the shard: sharded(config(), shard()).
  const ModelConfig& local() const { return local_; }
  /// "checkpoint FOLDER" or "synthetic weights, seed 7".
  virtual std::string description() const = 0;

  virtual bool has(std::string_view name) const = 0;
  /// Dtype and shape are those of find_tensor_info.
  virtual Tensor get(std::string_view name) const = 0;
  /// The same bytes into memory of the caller: `out` has exactly the tensor's size.
  virtual void read(std::string_view name, std::span<std::byte> out) const = 0;
  /// Rows begin ... end - 1 of the shard's part of a tensor that is stored whole along its first dimension.
  virtual Tensor rows(std::string_view name, std::int64_t begin, std::int64_t end) const { return get(name).slice(0, begin, end); }
  /// The value of an f32 tensor of one element; where an optional tensor (k_scale) is absent: 1.
  float scalar(std::string_view name) const;

  /// The module's weights: zero-copy from a checkpoint.
  Linear linear(std::string_view module) const;
  /// The rows of several modules of equal K, one below the other: gate_proj and up_proj; q_a_proj and kv_a_proj_with_mqa. Owns its memory.
  /// All must have one form; NVFP4 modules must share weight_scale_2 and input_scale, else bad_value names both modules and both values;
  /// input_scale of w4a8 is the largest.
  Linear fused(std::span<const std::string> modules) const;
  /// The same without its tensors and scales: what is known without reading anything.
  Linear described(std::span<const std::string> modules) const;

  /// `k_proj.k_scale` and `v_proj.v_scale` of the layer's attention; where only one is present it counts for both.
  KvScales kv_scales(std::int64_t layer) const;

  /// Looks at every tensor that layer `layer` should have: present, of the right dtype and shape. Reads headers only.
  virtual void check_layer(std::int64_t layer) const = 0;
  /// The same of what lies outside of layers.
  virtual void check_outer() const {}

  /// Whether tensors have dtypes and shapes but no memory: what plans are made of.
  virtual bool sizes_alone() const { return false; }
  /// Hints for a walk through the layers: the layer's tensors, but for routed experts, are wanted soon; nothing of it is wanted any more.
  /// Neither changes what any function gives.
  virtual void prefetch(std::int64_t /*layer*/) const {}
  virtual void release(std::int64_t /*layer*/) const {}

 protected:
  /// Throws Error (bad_value) for a shard that cannot be.
  WeightSource(ModelConfig config, const Shard& shard) : config_(std::move(config)), shard_(shard), local_(sharded(config_, shard)) {}

 private:
  ModelConfig config_;
  Shard shard_;
  ModelConfig local_;
};

/// A folder with `model.safetensors.index.json` and its shards, or with one `model.safetensors`. Shards are memory-mapped when first
/// needed: only what is touched is paged in. Parts that are whole rows lie in the file, others are copied. Throws Error for a folder
/// without either, an index that names an absent shard, a shard that is truncated or a Git LFS pointer.
std::unique_ptr<WeightSource> open_checkpoint(const std::string& folder, ModelConfig config, const Shard& shard = {});

/// Sizes without weights: get gives tensors without memory, which no op can read.
std::unique_ptr<WeightSource> planned_weights(ModelConfig config, const Shard& shard = {});

/// Weights drawn from `seed` and each tensor's name, any one alone; the same bytes on every machine (model/synthetic.h gives the formulas).
/// `exec` says with how many threads and on which tier they are made.
std::unique_ptr<WeightSource> synthetic_weights(ModelConfig config, std::uint64_t seed, const Exec& exec, const Shard& shard = {});

}  // namespace dodona::model
