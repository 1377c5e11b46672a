// The weights of one decoder layer, made ready to run.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "dodona/exec.h"
#include "model/projection.h"
#include "model/weights.h"

namespace dodona::model {

/// gate_up is [gate; up] along its rows.
struct MlpWeights {
  Projection gate_up, down;
  std::int64_t bytes() const { return gate_up.bytes() + down.bytes(); }
};

/// kv_b_proj split for the absorbed path: per head W [nope + v, latent].
struct AbsorbWeights {
  Tensor w_kc;  ///< [Nh, Dn, Lkv]
  Tensor w_vc;  ///< [Nh, Lkv, Dv]: a transposed view
  /// Where kv_b_proj is NVFP4: both as e4m3 with one scale, for `bmm_fp8`; column-major as that op takes them.
  Tensor scale;
  bool is_fp8() const { return scale.defined(); }
  std::int64_t bytes() const;
};

class LayerWeights {
 public:
  /// Loads everything but the routed experts. With `fused_shared` the shared expert is expert E of the grouped products.
  /// The source must outlive this. Throws Error naming the tensor.
  LayerWeights(const WeightSource& source, std::int64_t layer, Rounding rounding, bool fused_shared, const Exec& exec);

  const ModelConfig& config() const { return source_->config(); }
  std::int64_t layer() const { return layer_; }
  bool is_moe() const { return moe_; }
  Rounding rounding() const { return rounding_; }
  bool fused_shared() const { return fused_shared_; }

  Tensor input_layernorm, post_attention_layernorm, q_a_layernorm, kv_a_layernorm;
  Projection fused_qkv_a;   ///< with low-rank q
  Projection q_proj, kv_a;  ///< without
  Projection q_b, o;
  AbsorbWeights absorb;
  MlpWeights mlp;          ///< dense layers
  Projection gate;         ///< the router, [E, H]
  Tensor correction_bias;  ///< f32 [E]
  MlpWeights shared;       ///< MoE layers, unless fused

  /// Loads the experts that are not there yet. Ids may repeat; E is the shared expert when it is fused.
  void touch(std::span<const std::int32_t> ids, const Exec& exec);
  /// An expert that has been touched.
  const MlpWeights& expert(std::int64_t id) const { return experts_.at(id); }
  /// Experts of the grouped products: E, or E + 1 with the shared one.
  std::int64_t experts() const;
  /// Whether the routed experts are NVFP4.
  bool experts_nvfp4() const { return experts_nvfp4_; }

 private:
  Projection projection(std::initializer_list<const char*> modules, const Exec& exec, bool routed = false) const;
  MlpWeights load_mlp(const std::string& module, const Exec& exec, bool routed = false) const;
  Tensor norm(const char* name) const;

  const WeightSource* source_;
  std::int64_t layer_;
  Rounding rounding_;
  bool fused_shared_, moe_, experts_nvfp4_ = false;
  std::map<std::int64_t, MlpWeights> experts_;
};

}  // namespace dodona::model
